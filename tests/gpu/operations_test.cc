// SPDX-License-Identifier: Apache-2.0
// The kernels that operations give as CUDA text: attention's, with keys that were kept too, those
// of sparse experts (top_k_mask, marked_rows, gather, scatter_add) and those of an operation that
// the library does not have. Compiled for the CPU they give what the definition in float64 gives;
// NVRTC compiles them for sm_90a.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <string>

#include "gpu/clean_kernels.h"
#include "gpu/operation_run.h"
#include "operations/causal_convolution.h"

namespace coda::gpu::of_calls {
namespace {

const AttentionCase kAttention[] = {
    {2, 5, 2, 2, 16, 16, true, 0, 0},
    {1, 7, 4, 2, 16, 24, false, 0, 0},
    {2, 9, 2, 1, 40, 16, true, 3, 0},
    {1, 8, 2, 1, 64, 64, true, 1, 0.7},
    {1, 6, 2, 2, 128, 33, true, 50, 20},
    {1, 6, 2, 2, 16, 16, false, 0, 1.5},
    // Heads as models have them, in groups, with a last block of threads that is not full.
    {1, 19, 3, 1, 64, 64, false, 0, 0},
    {1, 11, 3, 1, 128, 128, true, 0, 0},
    {2, 7, 5, 5, 128, 128, false, 0, 0},
    {1, 18, 3, 1, 64, 64, true, 7, 0},
    {2, 19, 2, 1, 16, 8, true, 5, 9, DType::f32, {1, 0, 8, 7}},
    {1, 19, 2, 1, 16, 8, false, 0, 0, DType::f32, {4, 15}},
    {2, 19, 4, 2, 16, 8, true, 5, 9, DType::f32, {}, true},
    {2, 19, 2, 1, 16, 24, false, 0, 0, DType::f32, {4, 8}, true},
    // More tokens than the sum over tokens has threads.
    {1, 1100, 1, 1, 16, 8, true, 2, 0, DType::f32, {}, true},
};

// In fp32; attention_test.cc has 16 bits.
TEST(Operations, AttentionsKernelsGiveWhatTheDefinitionGives) {
  for (const AttentionCase& c : kAttention) {
    Numbers numbers = c.numbers(1);
    expect_right(c.call(false), c.tensors(false), numbers, 2e-6);
    expect_right(c.call(true), c.tensors(true), numbers, 2e-5);
  }
}

// The newest tokens behind none, few and many that are kept, of which there are more than count.
struct PastCase {
  int64_t rows, room, length, heads, kv_heads, head_dim, value_dim, window;
  double soft_cap;
  DType type = DType::f32;
  bool has_sinks = false;

  std::vector<CallTensor> tensors() const {
    std::vector<CallTensor> all{{"q", rows, heads * head_dim, type},
                                {"k", rows, kv_heads * head_dim, type},
                                {"v", rows, kv_heads * value_dim, type},
                                {"past_keys", room, kv_heads * head_dim, type},
                                {"past_values", room, kv_heads * value_dim, type},
                                {"length", 1, 1, DType::i32}};
    if (has_sinks) all.push_back({"sinks", 1, heads, DType::f32});
    all.push_back({"y", rows, heads * value_dim, type});
    return all;
  }
  OpaqueCall call() const {
    std::vector<std::string> operands{"q", "k", "v", "past_keys", "past_values", "length"};
    if (has_sinks) operands.push_back("sinks");
    return {"attention_with_past",
            {{"heads", heads},
             {"kv_heads", kv_heads},
             {"head_dim", head_dim},
             {"value_dim", value_dim},
             {"scale", 0.3},
             {"causal", 1},
             {"window", window},
             {"soft_cap", soft_cap},
             {"sinks", has_sinks ? 1 : 0}},
            {},
            operands,
            {"y"}};
  }
};

const PastCase kPast[] = {
    {1, 7, 0, 2, 1, 16, 16, 0, 0},
    {1, 30, 29, 4, 2, 40, 24, 0, 0},
    {3, 40, 21, 3, 3, 64, 64, 5, 20},
    {2, 12, 12, 2, 2, 128, 33, 1, 0},
    {5, 9, 2, 2, 1, 16, 16, 0, 0.7},
    {1, 30, 25, 2, 1, 64, 64, 0, 0, DType::bf16},
    {2, 7, 0, 4, 2, 16, 8, 0, 0, DType::f32, true},
    {1, 30, 25, 3, 1, 64, 64, 5, 9, DType::bf16, true},
};

TEST(Operations, AttentionWithPastGivesWhatTheDefinitionGives) {
  for (const PastCase& c : kPast) {
    Numbers numbers;
    uint64_t seed = 1;
    for (const CallTensor& t : c.tensors())
      numbers[t.name] = random_values(t.rows * t.cols, seed++);
    numbers["length"] = {static_cast<double>(c.length)};
    expect_right(c.call(), c.tensors(), numbers, c.type == DType::f32 ? 2e-6 : 4e-3);
  }
}

OpaqueCall convolution() {
  tests::register_causal_convolution();
  return {"causal_convolution", {{"reversed", 1}}, {{"sequence", 7}}, {"x", "w"}, {"y"}};
}

TEST(Operations, ARegisteredOperationsKernelGivesWhatItsDefinitionGives) {
  for (DType type : {DType::f32, DType::bf16}) {
    Numbers numbers{{"x", random_values(21 * 10, 1)}, {"w", random_values(4 * 10, 2)}};
    expect_right(convolution(), {{"x", 21, 10, type}, {"w", 4, 10, type}, {"y", 21, 10, type}},
                 numbers, type == DType::f32 ? 1e-6 : 4e-3);
  }
}

// A mask of 5 columns, and their lists.
struct MarkedRows {
  OpaqueCall call;
  std::vector<CallTensor> tensors;

  MarkedRows(int64_t rows, int64_t places, DType type)
      : call{"marked_rows", {}, {{"rows", places}}, {"mask"}, {}},
        tensors{{"mask", rows, 5, type}} {
    for (int i = 0; i < 5; ++i) {
      call.outputs.push_back("list" + std::to_string(i));
      tensors.push_back({call.outputs.back(), places, 1, DType::f32});
    }
  }
};

OpaqueCall gather_call() { return {"gather", {}, {}, {"x", "list"}, {"gathered"}}; }
std::vector<CallTensor> gather_tensors(int64_t rows, int64_t count, int64_t cols, DType type) {
  return {{"x", rows, cols, type}, {"list", count, 1, DType::f32}, {"gathered", count, cols, type}};
}
OpaqueCall scatter_call(int64_t rows, bool adds) {
  OpaqueCall call{"scatter_add", {}, {{"rows", rows}}, {"y", "list"}, {"sum"}};
  if (adds) call.inputs.push_back("x");
  return call;
}
std::vector<CallTensor> scatter_tensors(int64_t rows, int64_t count, int64_t cols, DType type,
                                        bool adds) {
  std::vector<CallTensor> tensors{{"y", count, cols, type}, {"list", count, 1, DType::f32}};
  if (adds) tensors.push_back({"x", rows, cols, type});
  tensors.push_back({"sum", rows, cols, type});
  return tensors;
}

OpaqueCall top_k(double k) { return {"top_k_mask", {{"k", k}}, {}, {"x"}, {"mask"}}; }

// Rows of few different numbers, in more than one block of threads.
TEST(Operations, TheMaskOfTheLargestIsThatOfTheDefinition) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1}, {130, 8}, {37, 61}}) {
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      Numbers numbers{{"x", random_values(rows * cols, 3)}};
      for (size_t i = 0; i < numbers["x"].size(); ++i) {
        double& x = numbers["x"][i];
        x = i % 11 == 0 ? std::nan("") : i % 7 == 0 ? HUGE_VAL : std::round(2 * x);
      }
      expect_right(top_k(3), {{"x", rows, cols, type}, {"mask", rows, cols, type}}, numbers, 1e-9);
    }
  }
}

// Columns of which none, some and all rows are marked, in lists that are too short for some, and of
// more rows than a block has threads.
TEST(Operations, ListsOfMarkedRowsAreThoseOfTheDefinition) {
  for (const auto& [rows, places] : {std::pair<int64_t, int64_t>{1, 1}, {130, 64}, {700, 256}}) {
    for (DType type : {DType::f32, DType::bf16, DType::f16}) {
      const MarkedRows lists(rows, places, type);
      Numbers numbers{{"mask", random_values(rows * 5, 3)}};
      for (size_t i = 0; i < numbers["mask"].size(); ++i) {
        double& mark = numbers["mask"][i];
        mark = i % 5 == 0 ? 0 : i % 5 == 1 ? 1 : mark > 0.5 ? 1 : 0;
      }
      expect_right(lists.call, lists.tensors, numbers, 1e-9);
    }
  }
}

// Row numbers that a program computed, -1 among them; rows that are whole vectors, others that are
// not, and vectors.
TEST(Operations, GatherAndScatterAddAreThoseOfTheirDefinition) {
  for (const auto& [rows, count, cols] :
       {std::tuple<int64_t, int64_t, int64_t>{40, 64, 72}, {300, 130, 5}, {70, 128, 1}}) {
    for (DType type : {DType::f32, DType::bf16}) {
      Numbers numbers{{"x", random_values(rows * cols, 1)}, {"y", random_values(count * cols, 2)}};
      std::mt19937_64 random(7);
      for (int64_t i = 0; i < count; ++i)
        numbers["list"].push_back(
            i % 3 == 0 ? -1 : static_cast<double>(random() % static_cast<uint64_t>(rows)));
      const double tolerance = type == DType::f32 ? 1e-6 : 4e-3;
      expect_right(gather_call(), gather_tensors(rows, count, cols, type), numbers, 1e-9);
      expect_right(scatter_call(rows, false), scatter_tensors(rows, count, cols, type, false),
                   numbers, tolerance);
      expect_right(scatter_call(rows, true), scatter_tensors(rows, count, cols, type, true),
                   numbers, tolerance);
    }
  }
}

TEST(Operations, KernelsCompileForTheGpu) {
  std::set<std::string> texts;
  const auto add = [&](const OpaqueCall& call, const std::vector<CallTensor>& tensors) {
    for (const KernelLaunch& launch : launches_of(call, tensors)) texts.insert(launch.source);
  };
  for (const AttentionCase& c : kAttention) {
    add(c.call(false), c.tensors(false));
    add(c.call(true), c.tensors(true));
  }
  for (PastCase c : kPast) {
    add(c.call(), c.tensors());
    c.type = DType::f16;
    add(c.call(), c.tensors());
  }
  for (DType type : {DType::f32, DType::bf16})
    add(convolution(), {{"x", 21, 10, type}, {"w", 4, 10, type}, {"y", 21, 10, type}});
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    add(top_k(2), {{"x", 300, 8, type}, {"mask", 300, 8, DType::f32}});
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    const MarkedRows lists(300, 64, type);
    add(lists.call, lists.tensors);
    add(gather_call(), gather_tensors(300, 64, 72, type));
    for (const bool adds : {false, true})
      add(scatter_call(300, adds), scatter_tensors(300, 64, 72, type, adds));
  }
  expect_no_defects(texts);
}

TEST(Operations, WorkThatIsAFunctionHasNoText) {
  tests::register_causal_convolution();
  const OpaqueCall call{
      "causal_convolution_weights", {}, {{"sequence", 7}, {"width", 2}}, {"x", "dy"}, {"dw"}};
  try {
    launches_of(call,
                {{"x", 21, 10, DType::f32}, {"dy", 21, 10, DType::f32}, {"dw", 2, 10, DType::f32}});
    ADD_FAILURE() << "lowered";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("is a function, not text"));
  }
}

}  // namespace
}  // namespace coda::gpu::of_calls
