// SPDX-License-Identifier: Apache-2.0
// Each function is a few lines of CUDA that name types and the head's size and call the device
// function; everything else is among the numbers.
#include "hopper/opaque_kernels.h"

#include <bit>
#include <cmath>
#include <string>

#include "coda/backend.h"
#include "coda/error.h"

namespace coda::hopper {
namespace {

constexpr uint32_t kWarpSize = 32;
constexpr uint32_t kAttentionThreads = 128;
// device/embedding.cuh has the same.
constexpr uint32_t kEmbeddingThreads = 256;
constexpr int64_t kEmbeddingColumns = 8;  // of a thread
constexpr int64_t kEmbeddingPieces = 4;
constexpr int64_t kGradientRows = 256;
constexpr int64_t kGradientColumns = 256;
constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr int64_t kLargestHead = 256;

// What every function needs of its call.
struct Call {
  const OpaqueCall& call;
  std::span<const TensorDecl> tensors;
  const DimValues& sizes;
  const LowerOptions& options;

  void check(bool holds, const std::string& what) const {
    require(holds, call.function + ": " + what);
  }
  PhysicalShape shape(size_t tensor) const { return physical_shape(tensors[tensor], sizes); }
  uint32_t stride(size_t tensor) const {
    const int64_t stride =
        options.row_strides.empty() ? shape(tensor).cols : options.row_strides[tensor];
    return static_cast<uint32_t>(stride);
  }
  double attribute(const char* name) const {
    const auto found = call.attributes.find(name);
    check(found != call.attributes.end(), std::string("attribute '") + name + "' is missing");
    return found->second;
  }
  uint32_t count(const char* name) const {
    const double value = attribute(name);
    check(value >= 1 && value <= 65535 && value == std::floor(value),
          std::string("attribute '") + name + "' must be a positive whole number");
    return static_cast<uint32_t>(value);
  }
  std::string stored(size_t tensor) const {
    switch (tensors[tensor].dtype) {
      case DType::f32: return "Stored::f32";
      case DType::bf16: return "Stored::bf16";
      case DType::f16: return "Stored::f16";
      default: break;
    }
    throw Error(call.function + ": '" + tensors[tensor].name + "' is " +
                std::string(name_of(tensors[tensor].dtype)) +
                "; f32, bf16 and f16 are computed with");
  }
};

uint32_t ceil_div(int64_t a, int64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// `body` reads tensors as p(i) and numbers as n(i).
KernelLaunch launch(const Call& call, const std::string& function, const std::string& header,
                    const std::string& body, std::vector<uint32_t> numbers) {
  const std::string pointers = std::to_string(call.tensors.size());
  KernelLaunch result;
  result.function = function;
  result.source =
      "#include \"device/arguments.cuh\"\n#include \"device/dependent_launch.cuh\"\n"
      "#include \"device/" +
      header + "\"\n\nusing namespace coda::device;\nusing Arguments = KernelArguments<0, " +
      pointers + ", " + std::to_string(numbers.size()) + ">;\n\nextern \"C\" __global__ void " +
      function +
      "(const __grid_constant__ Arguments arguments) {\n"
      "  const auto p = [&](u32 i) { return arguments.pointers[i]; };\n"
      "  const auto n = [&](u32 i) { return arguments.numbers[i]; };\n"
      "  launch_dependents();\n  wait_for_predecessor();\n" +
      body + "}\n";
  for (size_t i = 0; i < call.tensors.size(); ++i) result.pointers.push_back(static_cast<int>(i));
  result.numbers = std::move(numbers);
  result.waits_for_predecessor = true;
  return result;
}

// Numbers 0 to 5 are the sizes, then a stride for each tensor.
constexpr const char* kAttentionSizes =
    "  const AttentionSizes sizes{n(0), n(1), n(2), n(3), n(4), __uint_as_float(n(5))};\n";

std::string head_rows(size_t tensor) {
  return "HeadRows{p(" + std::to_string(tensor) + "), n(" + std::to_string(6 + tensor) + ")}";
}

struct Attention {
  std::vector<uint32_t> numbers;
  std::string arguments;  // of the device functions' templates
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

// `lse` is the one tensor that is not [rows, heads * head_dim] of the common type.
Attention check_attention(const Call& call, size_t inputs, size_t outputs, size_t lse) {
  call.check(call.call.inputs.size() == inputs && call.call.outputs.size() == outputs &&
                 call.tensors.size() == inputs + outputs,
             "takes " + std::to_string(inputs) + " tensors and makes " + std::to_string(outputs));
  const uint32_t heads = call.count("heads");
  const uint32_t kv_heads = call.count("kv_heads");
  const uint32_t dim = call.count("head_dim");
  const auto found = call.call.sizes.find("sequence");
  call.check(found != call.call.sizes.end(), "size 'sequence' is missing");
  const int64_t sequence = found->second.evaluate(call.sizes);
  const int64_t rows = call.shape(0).rows;
  call.check(heads % kv_heads == 0, std::to_string(heads) + " heads are not a multiple of " +
                                        std::to_string(kv_heads) + " key-value heads");
  call.check(dim <= kLargestHead, "a head of " + std::to_string(dim) + " is above the largest, " +
                                      std::to_string(kLargestHead));
  call.check(sequence > 0 && rows % sequence == 0,
             std::to_string(rows) + " rows are not whole sequences of " + std::to_string(sequence));
  const float scale = static_cast<float>(call.attribute("scale"));
  Attention result{
      .numbers = {static_cast<uint32_t>(rows), static_cast<uint32_t>(sequence), heads, kv_heads,
                  call.attribute("causal") != 0 ? 1u : 0u, std::bit_cast<uint32_t>(scale)},
      .arguments = "<" + call.stored(0) + ", " + std::to_string(dim) + ">",
      .rows = rows,
      .heads = heads,
      .kv_heads = kv_heads};
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    const PhysicalShape shape = call.shape(i);
    const bool ok = i == lse ? call.tensors[i].dtype == DType::f32 && shape.cols == heads
                             : call.tensors[i].dtype == call.tensors[0].dtype &&
                                   (shape.cols == static_cast<int64_t>(heads) * dim ||
                                    shape.cols == static_cast<int64_t>(kv_heads) * dim);
    call.check(ok && shape.rows == rows,
               "'" + call.tensors[i].name + "' is [" + std::to_string(shape.rows) + ", " +
                   std::to_string(shape.cols) + "] " + std::string(name_of(call.tensors[i].dtype)) +
                   ", which does not fit the heads");
    result.numbers.push_back(call.stride(i));
  }
  return result;
}

void shape_by_warps(KernelLaunch& launch, int64_t warps) {
  launch.threads = kAttentionThreads;
  launch.grid = ceil_div(warps, kAttentionThreads / kWarpSize);
}

// q, k, v -> y, lse.
std::vector<KernelLaunch> attention(const Call& call) {
  const Attention a = check_attention(call, 3, 2, 4);
  KernelLaunch forward = launch(call, "attention", "attention.cuh",
                                std::string(kAttentionSizes) + "  attention_forward" + a.arguments +
                                    "(sizes, " + head_rows(0) + ", " + head_rows(1) + ", " +
                                    head_rows(2) + ",\n      " + head_rows(3) + ", p(4), n(10));\n",
                                a.numbers);
  shape_by_warps(forward, a.rows * a.heads);
  return {forward};
}

// q, k, v, y, lse, dy -> dq, dk, dv.
std::vector<KernelLaunch> attention_backward(const Call& call) {
  const Attention a = check_attention(call, 6, 3, 4);
  const std::string in = std::string(kAttentionSizes) + "  const AttentionBackward in{sizes, " +
                         head_rows(0) + ", " + head_rows(1) + ", " + head_rows(2) + ",\n      " +
                         head_rows(3) + ", " + head_rows(5) + ", p(4), n(10)};\n";
  KernelLaunch queries =
      launch(call, "attention_backward_queries", "attention.cuh",
             in + "  attention_backward_queries" + a.arguments + "(in, " + head_rows(6) + ");\n",
             a.numbers);
  KernelLaunch keys = launch(call, "attention_backward_keys", "attention.cuh",
                             in + "  attention_backward_keys" + a.arguments + "(in, " +
                                 head_rows(7) + ", " + head_rows(8) + ");\n",
                             a.numbers);
  shape_by_warps(queries, a.rows * a.heads);
  shape_by_warps(keys, a.rows * a.kv_heads);
  return {queries, keys};
}

void check_embedding(const Call& call, size_t most_inputs, size_t ids) {
  const size_t inputs = call.call.inputs.size();
  call.check(inputs >= 2 && inputs <= most_inputs && call.call.outputs.size() == 1 &&
                 call.tensors.size() == inputs + 1,
             "takes 2" + std::string(most_inputs > 2 ? " or 3" : "") + " tensors and makes 1");
  call.check(call.tensors[ids].dtype == DType::i32, "ids are i32");
  call.check(call.shape(ids).rows == 1 || call.stride(ids) == 1,
             "'" + call.tensors[ids].name + "' lie " + std::to_string(call.stride(ids)) +
                 " apart; they must lie side by side");
}

// table [V, D], ids [M] -> [M, D].
std::vector<KernelLaunch> embedding(const Call& call) {
  check_embedding(call, 2, 1);
  const PhysicalShape out = call.shape(2);
  KernelLaunch forward =
      launch(call, "embedding", "embedding.cuh",
             "  embedding_forward<" + call.stored(0) + ", " + call.stored(2) +
                 ">(n(0), n(1), n(2), MatrixRows{p(0), n(3)}, p(1), MatrixRows{p(2), n(4)});\n",
             {static_cast<uint32_t>(out.cols), static_cast<uint32_t>(call.shape(0).rows),
              static_cast<uint32_t>(out.rows), call.stride(0), call.stride(2)});
  const int64_t pieces = out.rows * ceil_div(out.cols, kEmbeddingColumns);
  call.check(pieces < int64_t{1} << 32, std::to_string(out.rows) + " tokens of " +
                                            std::to_string(out.cols) +
                                            " columns are too many for one launch; look up fewer");
  forward.threads = kEmbeddingThreads;
  forward.grid = ceil_div(pieces, kEmbeddingThreads * kEmbeddingPieces);
  return {forward};
}

// dx [M, D], ids [M], optionally a tensor [V, D] to add to -> [V, D].
std::vector<KernelLaunch> embedding_backward(const Call& call) {
  check_embedding(call, 3, 1);
  const bool adds = call.call.inputs.size() == 3;
  const size_t out = call.tensors.size() - 1;
  const size_t added = adds ? 2 : out;
  const PhysicalShape table = call.shape(out);
  const uint32_t columns = static_cast<uint32_t>(table.cols);
  const uint32_t column_blocks = ceil_div(table.cols, kGradientColumns);
  call.check(call.shape(0).rows <= kMostTokens,
             std::to_string(call.shape(0).rows) + " tokens are more than a kernel counts to (" +
                 std::to_string(kMostTokens) + "); run it on fewer and add up");
  const std::string p_out = std::to_string(out);
  const std::string p_added = std::to_string(added);
  KernelLaunch backward = launch(
      call, "embedding_backward", "embedding.cuh",
      "  __shared__ TokenMatches matches;\n  embedding_backward<" + call.stored(0) + ", " +
          call.stored(added) + ", " + call.stored(out) + ", " + (adds ? "true" : "false") +
          ">(matches, n(0), n(1), n(2), n(3),\n      MatrixRows{p(0), n(4)}, p(1), MatrixRows{p(" +
          p_added + "), n(5)}, MatrixRows{p(" + p_out + "), n(6)});\n",
      {columns, static_cast<uint32_t>(table.rows), static_cast<uint32_t>(call.shape(0).rows),
       column_blocks, call.stride(0), call.stride(added), call.stride(out)});
  backward.threads = kEmbeddingThreads;
  backward.grid = ceil_div(table.rows, kGradientRows) * column_blocks;
  return {backward};
}

}  // namespace

std::vector<KernelLaunch> lower_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, const LowerOptions& options) {
  struct Function {
    const char* name;
    std::vector<KernelLaunch> (*lower)(const Call&);
  };
  static constexpr Function kFunctions[] = {{"attention", attention},
                                            {"attention_backward", attention_backward},
                                            {"embedding", embedding},
                                            {"embedding_backward", embedding_backward}};
  for (const Function& function : kFunctions) {
    if (call.function == function.name) return function.lower({call, tensors, sizes, options});
  }
  throw Error("opaque function '" + call.function +
              "' has no kernel on a GPU; add a row to src/hopper/opaque_kernels.cc");
}

}  // namespace coda::hopper
