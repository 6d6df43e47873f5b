// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU, cuDNN's and the library's own: against its definition in float64, for heads
// that are grouped, ragged sequences, windows and tensors that lie apart; the repeatable backward
// the same bits each time, whole or in parts. Results are poisoned before, and what lies around
// them must stay as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/relative_error.h"
#include "coda/backend.h"
#include "coda/operation.h"
#include "gpu/cudnn/attention_kernel.h"
#include "on_gpu/device_run.h"
#include "on_gpu/on_gpu.h"
#include "operations/document_spans.h"
#include "runtime/operation_call.h"

namespace coda::tests::attention_test {
namespace {

struct Case {
  int64_t sequences = 1;
  int64_t tokens = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  int64_t value_dim = 64;
  bool causal = true;
  int64_t window = 0;
  double soft_cap = 0;
  // Lengths of documents, which follow each other in each sequence, in each from the next on;
  // tokens behind them see nothing. Empty: no documents.
  std::vector<int64_t> documents = {};
  bool sinks = false;
  bool padded = false;  // `documents` are lengths of tokens that are seen and hidden in turns

  int64_t rows() const { return sequences * tokens; }
  int64_t rows_of(const std::string& name) const { return name.ends_with("sinks") ? 1 : rows(); }
  OpaqueCall call(bool backward) const {
    OpaqueCall call;
    call.function = backward ? "attention_backward" : "attention";
    call.attributes = {{"heads", heads},
                       {"kv_heads", kv_heads},
                       {"head_dim", head_dim},
                       {"value_dim", value_dim},
                       {"scale", 1 / std::sqrt(static_cast<double>(head_dim))},
                       {"causal", causal ? 1 : 0},
                       {"window", padded ? 0 : window},
                       {"soft_cap", soft_cap},
                       {"documents", documents.empty() ? 0 : 1},
                       {"key_spans", padded},
                       {"sinks", sinks ? 1 : 0}};
    call.sizes = {{"sequence", Dim(tokens)}};
    call.inputs = backward ? std::vector<std::string>{"q", "k", "v", "y", "lse", "dy"}
                           : std::vector<std::string>{"q", "k", "v"};
    call.outputs = backward ? std::vector<std::string>{"dq", "dk", "dv"}
                            : std::vector<std::string>{"y", "lse"};
    if (!documents.empty()) call.inputs.push_back("documents");
    if (sinks) call.inputs.push_back("sinks");
    if (sinks && backward) call.outputs.push_back("dsinks");
    return call;
  }
  int64_t columns_of(const std::string& name) const {
    if (name == "lse" || name.ends_with("sinks")) return heads;
    if (name == "documents") return padded ? 4 : 2;
    if (name == "q" || name == "dq") return heads * head_dim;
    if (name == "k" || name == "dk") return kv_heads * head_dim;
    return (name == "v" || name == "dv" ? kv_heads : heads) * value_dim;
  }
};

constexpr float kPoison = -77;

// A tensor of the GPU as columns of a wider one, with poison around it (lse and sinks: dense, by
// themselves).
struct Placed {
  Tensor whole;
  TensorView view;

  Placed(const std::string& name, DType dtype, int64_t rows, int64_t cols, Backend& gpu) {
    const bool is_dense = name == "lse" || name.ends_with("sinks");
    const int64_t before = is_dense ? 0 : 64, after = is_dense ? 0 : 32;
    const bool has_integers = name == "documents" || name == "length";
    const DType own = is_dense ? DType::f32 : has_integers ? DType::i32 : dtype;
    whole = Tensor(own, rows, before + cols + after, gpu);
    whole.fill(kPoison);
    view = whole.view();
    view.data = static_cast<std::byte*>(view.data) + before * size_of(view.dtype);
    view.cols = cols;
  }
  std::vector<float> values(Backend& gpu) const {
    Tensor host(view.dtype, view.rows, view.cols);
    gpu.copy_out(view, host.view());
    return host.floats();
  }
  void set(const std::vector<float>& values, Backend& gpu) {
    Tensor host(view.dtype, view.rows, view.cols);
    host.set(values);
    gpu.copy_in(host.view(), view);
  }
  // Everything that is not in the view.
  void expect_poison_around() const {
    const std::vector<float> all = whole.floats();
    const int64_t cols = whole.cols();
    const int64_t before =
        (static_cast<std::byte*>(view.data) - static_cast<const std::byte*>(whole.view().data)) /
        size_of(view.dtype);
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      const int64_t column = i % cols;
      const bool is_inside = column >= before && column < before + view.cols;
      ASSERT_TRUE(is_inside || all[i] == kPoison) << "row " << i / cols << ", column " << column;
    }
  }
};

using Tensors = std::map<std::string, std::vector<float>>;

// The call's results on the GPU, of a kernel that `prepare` makes.
using Preparing = std::function<std::unique_ptr<Kernel>(const OpaqueCall& call,
                                                        std::span<const TensorDecl> tensors)>;
Tensors run(const Case& c, bool backward, DType dtype, const Tensors& inputs, Backend& gpu,
            const Preparing& prepare, int times) {
  const OpaqueCall call = c.call(backward);
  std::vector<TensorDecl> decls;
  std::vector<Placed> placed;
  std::vector<TensorView> views;
  std::vector<std::string> names = call.inputs;
  names.insert(names.end(), call.outputs.begin(), call.outputs.end());
  for (const std::string& name : names) {
    const int64_t cols = c.columns_of(name);
    placed.emplace_back(name, dtype, c.rows_of(name), cols, gpu);
    if (const auto given = inputs.find(name); given != inputs.end())
      placed.back().set(given->second, gpu);
    views.push_back(placed.back().view);
    decls.push_back({name, {c.rows_of(name), cols}, placed.back().view.dtype});
  }
  const auto kernel = prepare(call, decls);
  for (int i = 0; i < times; ++i) kernel->run(views);
  Tensors results;
  for (size_t i = 0; i < names.size(); ++i) {
    placed[i].expect_poison_around();
    if (i >= call.inputs.size()) results[names[i]] = placed[i].values(gpu);
  }
  return results;
}

Tensors run(const Case& c, bool backward, DType dtype, const Tensors& inputs, Backend& gpu,
            int times = 1) {
  return run(
      c, backward, dtype, inputs, gpu,
      [&](const OpaqueCall& call, std::span<const TensorDecl> tensors) {
        return gpu.prepare(call, tensors, {});
      },
      times);
}

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// The call's results by its definition.
Tensors reference(const Case& c, bool backward, const Tensors& inputs) {
  const OpaqueCall call = c.call(backward);
  const Operation& operation = find_operation(call.function);
  std::vector<Matrix> in, out;
  for (const std::string& name : call.inputs)
    in.push_back({c.rows_of(name), c.columns_of(name), doubles(inputs.at(name))});
  for (const std::string& name : call.outputs) {
    const int64_t rows = c.rows_of(name), cols = c.columns_of(name);
    out.push_back({rows, cols, std::vector<double>(static_cast<size_t>(rows * cols))});
  }
  operation.evaluate(checked_settings(operation, call.attributes, call.sizes), in, out);
  Tensors results;
  for (size_t i = 0; i < out.size(); ++i)
    results[call.outputs[i]] = {out[i].data.begin(), out[i].data.end()};
  return results;
}

// Normal numbers, as the type holds them.
std::vector<float> random_values(size_t count, DType dtype, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  Tensor rounded(dtype, 1, static_cast<int64_t>(count));
  rounded.set(values);
  return rounded.floats();
}

// Inputs of forward and backward, y and lse by the definition.
Tensors inputs_of(const Case& c, DType dtype, bool with_results = true) {
  std::mt19937 random(static_cast<unsigned>(c.rows() * 31 + c.heads));
  Tensors inputs;
  for (const char* name : {"q", "k", "v", "dy"}) {
    inputs[name] = random_values(static_cast<size_t>(c.rows() * c.columns_of(name)), dtype, random);
  }
  if (!c.documents.empty())
    inputs["documents"] =
        c.padded ? padding_spans<float>(c.documents, c.rows(), c.tokens, c.causal, c.window)
                 : document_spans<float>(c.documents, c.rows(), c.tokens);
  if (c.sinks) inputs["sinks"] = random_values(static_cast<size_t>(c.heads), DType::f32, random);
  if (!with_results) return inputs;
  for (auto& [name, values] : reference(c, false, inputs)) inputs[name] = values;
  return inputs;
}

// Infinities must be equal.
void expect_close(const Tensors& values, const Tensors& reference, double bound) {
  for (const auto& [name, expected] : reference) {
    std::vector<double> found = doubles(values.at(name)), wanted = doubles(expected);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (std::isinf(wanted[i]) && found[i] == wanted[i]) found[i] = wanted[i] = 0;
    EXPECT_LT(relative_error(found, wanted), bound) << name;
  }
}

std::unique_ptr<Backend> backend_with(GpuAttention attention) {
  return make_backend("gpu", {.attention = attention});
}

const Case kCases[] = {
    {2, 256, 4, 2, 64, 64},        {3, 200, 4, 4, 64, 64},           {1, 77, 2, 1, 128, 128},
    {2, 130, 8, 2, 80, 80, false}, {2, 300, 4, 2, 64, 64, true, 50}, {5, 1, 2, 1, 64, 64},
    {1, 515, 3, 1, 256, 256},      {2, 96, 6, 6, 192, 128},          {4, 33, 16, 1, 32, 32},
};

// cuDNN does not take these.
const Case kCapped[] = {
    {2, 200, 4, 2, 64, 64, true, 0, 20},
    {1, 300, 2, 1, 128, 128, false, 0, 5},
    {1, 260, 4, 2, 256, 256, true, 100, 50},
    // Documents of any length, some with tokens behind them.
    {2, 300, 4, 2, 64, 64, true, 0, 0, {1, 63, 0, 64, 65, 107}},
    {1, 700, 4, 2, 128, 128, true, 90, 20, {128, 300, 1, 60}},
    {2, 300, 2, 1, 64, 64, false, 0, 0, {128, 7}},
    {1, 200, 2, 1, 192, 128, true, 0, 0, {31, 169}},
    {1, 260, 4, 2, 256, 256, true, 100, 50, {130, 130}},
    {2, 300, 8, 1, 64, 64, true, 128, 0, {}, true},
    {1, 515, 4, 4, 128, 128, false, 0, 5, {}, true},
    {1, 200, 2, 1, 80, 80, true, 0, 0, {31, 100}, true},
    // Padding behind, in front and in between.
    {3, 300, 4, 2, 64, 64, true, 0, 0, {100, 0, 200}, false, true},
    {2, 515, 2, 1, 128, 128, false, 0, 0, {200, 300, 10}, false, true},
    {2, 700, 4, 2, 128, 128, true, 90, 20, {0, 400, 300}, false, true},
    {2, 300, 2, 1, 80, 80, true, 0, 0, {250}, true, true},
    {2, 515, 2, 1, 64, 64, false, 100, 0, {400}, false, true},
};

::testing::Message text(const Case& c) {
  return ::testing::Message() << c.sequences << " x " << c.tokens << ", heads " << c.heads << "/"
                              << c.kv_heads << " of " << c.head_dim << " and " << c.value_dim
                              << ", causal " << c.causal << ", window " << c.window << ", soft-cap "
                              << c.soft_cap << ", documents "
                              << ::testing::PrintToString(c.documents) << ", sinks " << c.sinks
                              << ", padded " << c.padded;
}

class AttentionOnGpu : public OnGpuWith<std::tuple<DType, GpuAttention>> {};

// Shares and their gradients are rounded to 16 bits before the second product, as the products of a
// fused kernel read them; so errors are a few roundings of the type, not of fp32.
TEST_P(AttentionOnGpu, IsItsDefinition) {
  const auto [dtype, attention] = GetParam();
  const auto gpu = backend_with(attention);
  const double bound = dtype == DType::bf16 ? 0.012 : 0.0016;
  for (const Case& c : kCases) {
    SCOPED_TRACE(text(c));
    const Tensors inputs = inputs_of(c, dtype);
    ::testing::internal::CaptureStderr();
    const Tensors forward = run(c, false, dtype, inputs, *gpu);
    const Tensors backward = run(c, true, dtype, inputs, *gpu, 2);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");  // no notice that cuDNN is not used
    expect_close(forward, reference(c, false, inputs), bound);
    expect_close(backward, reference(c, true, inputs), bound);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionOnGpu,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Values(GpuAttention::repeatable,
                                                              GpuAttention::fast,
                                                              GpuAttention::plain)),
                         [](const auto& info) {
                           const GpuAttention attention = std::get<1>(info.param);
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (attention == GpuAttention::repeatable ? "_repeatable"
                                   : attention == GpuAttention::fast     ? "_fast"
                                                                         : "_plain");
                         });

// The last tokens of a sequence after cached keys and values of the others, with and without sinks.
// The cache has room for one row more, which is poisoned.
TEST_F(OnGpu, AttentionAfterCachedTokensGivesTheRowsOfTheWhole) {
  const auto gpu = backend_with(GpuAttention::repeatable);
  for (Case c : {Case{1, 40, 4, 2, 64, 64}, Case{1, 75, 3, 1, 80, 40, true, 20, 5},
                 Case{1, 33, 2, 2, 128, 128, true, 0, 0, {}, true},
                 Case{1, 90, 8, 2, 64, 64, true, 16, 9, {}, true}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t newest : {1, 3}) {
        SCOPED_TRACE(text(c) << ", " << name_of(dtype) << ", newest tokens " << newest);
        const int64_t past = c.tokens - newest;
        Tensors all = inputs_of(c, dtype);
        OpaqueCall call = c.call(false);
        call.function = "attention_with_past";
        call.attributes.erase("documents");
        call.attributes.erase("key_spans");
        call.sizes.clear();
        call.inputs = {"q", "k", "v", "past_keys", "past_values", "length"};
        if (c.sinks) call.inputs.push_back("sinks");
        call.outputs = {"y"};
        const auto rows_of = [&](const std::string& name, int64_t first, int64_t count) {
          const auto begin = all.at(name).begin() + first * c.columns_of(name);
          return std::vector<float>(begin, begin + count * c.columns_of(name));
        };
        std::vector<TensorDecl> decls;
        std::vector<Placed> placed;
        const auto place = [&](const std::string& name, int64_t rows, int64_t cols) -> Placed& {
          placed.emplace_back(name, dtype, rows, cols, *gpu);
          decls.push_back({name, {rows, cols}, placed.back().view.dtype});
          return placed.back();
        };
        for (const char* name : {"q", "k", "v"})
          place(name, newest, c.columns_of(name)).set(rows_of(name, past, newest), *gpu);
        for (const auto& [name, of] :
             {std::pair{"past_keys", "k"}, std::pair{"past_values", "v"}}) {
          std::vector<float> rows = rows_of(of, 0, past);
          rows.resize(rows.size() + static_cast<size_t>(c.columns_of(of)), kPoison);
          place(name, past + 1, c.columns_of(of)).set(rows, *gpu);
        }
        place("length", 1, 1).set({static_cast<float>(past)}, *gpu);
        if (c.sinks) place("sinks", 1, c.heads).set(all.at("sinks"), *gpu);
        const Placed& y = place("y", newest, c.columns_of("y"));
        std::vector<TensorView> views;
        for (const Placed& tensor : placed) views.push_back(tensor.view);
        gpu->prepare(call, decls, {})->run(views);
        for (const Placed& tensor : placed) tensor.expect_poison_around();
        expect_close({{"y", y.values(*gpu)}}, {{"y", rows_of("y", past, newest)}},
                     dtype == DType::f32    ? 1e-6
                     : dtype == DType::bf16 ? 0.004
                                            : 0.0006);
      }
    }
  }
}

// A backward in parts, as it is done where it would take too much memory: of sequences, and of one
// sequence's heads.
TEST_F(OnGpu, AttentionInPartsIsItsDefinitionAndTheSameBitsEachTime) {
  const Case c{3, 200, 8, 4, 64, 64};
  const auto backend = backend_with(GpuAttention::repeatable);
  const Tensors inputs = inputs_of(c, DType::bf16);
  const Tensors wanted = reference(c, true, inputs);
  const int64_t of_head = 256 * 256 * 2;  // tokens of a sequence, rounded up
  const auto library = std::make_shared<gpu::cudnn::Library>();
  for (const int64_t most : {int64_t{1}, 5 * of_head, 9 * of_head, 100 * of_head}) {
    const auto prepare = [&](const OpaqueCall& call, std::span<const TensorDecl> tensors) {
      return gpu::cudnn::make_attention_kernel(gpu(), library, operation_call(call, tensors, {}),
                                               true, {most, most});
    };
    const Tensors once = run(c, true, DType::bf16, inputs, *backend, prepare, 1);
    expect_close(once, wanted, 0.012);
    EXPECT_EQ(once, run(c, true, DType::bf16, inputs, *backend, prepare, 3)) << most;
  }
}

class OwnAttentionOnGpu : public OnGpuWith<DType> {};

// The library's own kernels as they are chosen by default: with a soft-cap, documents or sinks, and
// on Hopper for random shapes with heads of 64 and 128.
TEST_P(OwnAttentionOnGpu, IsItsDefinitionAndTheSameBitsEachTime) {
  const DType dtype = GetParam();
  const auto gpu = backend_with(GpuAttention::repeatable);
  const double bound = dtype == DType::bf16 ? 0.012 : 0.0016;
  std::vector<Case> cases(std::begin(kCapped), std::end(kCapped));
  std::mt19937 random(dtype == DType::bf16 ? 1 : 2);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int i = 0; i < 24; ++i) {
    Case c = i % 3 == 0 ? kCapped[0] : i % 3 == 1 ? kCases[0] : kCases[2];
    c.sequences = upto(3);
    c.tokens = upto(400);
    c.kv_heads = upto(3);
    c.heads = c.kv_heads * upto(4);
    c.causal = random() % 4 != 0;
    c.window = c.causal && random() % 2 == 0 ? upto(c.tokens) : 0;
    c.sinks = i % 4 == 0;
    if (i >= 12) {
      for (int64_t left = c.tokens; left > 0 && c.documents.size() < 8; left -= c.documents.back())
        c.documents.push_back(upto(left + 1) - 1);
      c.padded = i >= 18;
    }
    cases.push_back(c);
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(text(c));
    const Tensors inputs = inputs_of(c, dtype);
    const Tensors forward = run(c, false, dtype, inputs, *gpu);
    const Tensors backward = run(c, true, dtype, inputs, *gpu);
    expect_close(forward, reference(c, false, inputs), bound);
    expect_close(backward, reference(c, true, inputs), bound);
    EXPECT_EQ(forward, run(c, false, dtype, inputs, *gpu, 3));
    EXPECT_EQ(backward, run(c, true, dtype, inputs, *gpu, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OwnAttentionOnGpu, ::testing::Values(DType::bf16, DType::f16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// What cuDNN does not take runs on the library's kernels, and a notice says so once.
TEST_F(OnGpu, ASoftCapRunsOnTheLibrarysKernels) {
  const auto gpu = backend_with(GpuAttention::repeatable);
  OpaqueCall call = Case{2, 64, 2, 2, 80, 80}.call(false);
  call.attributes["soft_cap"] = 30;
  std::vector<TensorDecl> decls;
  for (const char* name : {"q", "k", "v", "y"}) decls.push_back({name, {128, 160}, DType::bf16});
  decls.push_back({"lse", {128, 2}, DType::f32});
  ::testing::internal::CaptureStderr();
  gpu->prepare(call, decls, {});
  gpu->prepare(call, decls, {});
  const std::string notice = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(notice, ::testing::HasSubstr("runs without cuDNN"));
  EXPECT_THAT(notice, ::testing::HasSubstr("soft-cap"));
  EXPECT_EQ(std::count(notice.begin(), notice.end(), '\n'), 1);
}

}  // namespace
}  // namespace coda::tests::attention_test
