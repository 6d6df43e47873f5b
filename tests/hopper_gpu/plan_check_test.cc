// SPDX-License-Identifier: Apache-2.0
// Compiled plans of whole blocks and models on the GPU, forward and backward, with poisoned memory:
// every output and gradient within the error contract of docs/numerics.md, and the same bits from
// run to run. Needs a GPU; skipped elsewhere.
#include <gtest/gtest.h>

#include <list>

#include "coda/device.h"
#include "coda/error.h"
#include "cpu/plan_run.h"
#include "hopper/hopper_backend.h"

namespace coda {
namespace {

hopper::HopperBackend& backend() {
  static const std::unique_ptr<hopper::HopperBackend> one = hopper::make_hopper_backend();
  return *one;
}

// Runs both phases; outputs and gradients by name.
Tensors run_on_gpu(const Plan& plan, const DimValues& sizes, const Values& inputs) {
  Stream stream = Stream::make();
  backend().use_stream(stream);
  Session session(plan, backend(), sizes, {.timing = false, .poison = true});
  Tensors tensors;
  std::map<std::string, DeviceTensor> on_device;
  std::vector<std::string> outputs;
  for (const PlanTensor& t : plan.tensors) {
    const bool callers = t.role == TensorRole::input || t.role == TensorRole::parameter ||
                         t.role == TensorRole::output;
    if (!callers || !t.view_of.empty()) continue;
    const std::string& name = t.decl.name;
    const int64_t rows = t.decl.shape.rows.evaluate(sizes);
    const int64_t cols = t.decl.shape.cols.evaluate(sizes);
    const auto given = inputs.find(name);
    tensors.put(name, t.decl.dtype,
                given != inputs.end() ? given->second
                                      : std::vector<double>(static_cast<size_t>(rows * cols), NAN));
    DeviceTensor& tensor = on_device[name] = DeviceTensor(t.decl.dtype, rows, cols, stream);
    tensor.upload(dense_view(tensors.data(name), t.decl.dtype, rows, cols), stream);
    session.bind(name, tensor.view());
    if (t.role == TensorRole::output) outputs.push_back(name);
  }
  session.forward();
  if (!plan.backward.empty()) session.backward();
  for (const std::string& name : outputs) {
    TensorView host = on_device.at(name).view();
    host.data = tensors.data(name);
    on_device.at(name).download(host, stream);
  }
  stream.synchronize();
  return tensors;
}

struct Case {
  const char* name;
  std::function<void(Block&, const LlamaSizes&)> build;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"llama_block", [](Block& b, const LlamaSizes& s) { llama_block(b, s); }},
      {"llama_model", [](Block& b, const LlamaSizes& s) { llama_model(b, 2, true, s); }},
      {"gpt2_model", [](Block& b, const LlamaSizes& s) { gpt2_model(b, 2, s); }},
      {"parallel_block", [](Block& b, const LlamaSizes& s) { parallel_block(b, s); }},
      {"sandwich_block", [](Block& b, const LlamaSizes& s) { sandwich_block(b, s); }},
  };
  return all;
}

// Sizes of which none but the heads' is a multiple of a tile, nor of what the copy engine
// addresses; and sizes that a model has.
LlamaSizes sizes_of(bool ragged) {
  return ragged ? LlamaSizes{.hidden = 72,
                             .heads = 3,
                             .kv_heads = 1,
                             .head_dim = 32,
                             .mlp = 100,
                             .vocab = 67,
                             .sequence = 10}
                : LlamaSizes{.hidden = 256,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 64,
                             .mlp = 344,
                             .vocab = 504,
                             .sequence = 20};
}

class PlansOnGpu : public ::testing::TestWithParam<std::tuple<size_t, DType, bool>> {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << "skipped, no GPU: " << why;
  }
};

TEST_P(PlansOnGpu, ErrorsAreAtMostThoseOfTheComputationOpByOp) {
  const auto [which, storage, ragged] = GetParam();
  constexpr int kSeeds = 8;
  const LlamaSizes s = sizes_of(ragged);
  const DimValues sizes{{"M", ragged ? 70 : 160}};
  const auto build = [&, which = which](Block& b) { cases()[which].build(b, s); };
  Block b;
  b.storage = storage;
  build(b);
  const OpByOp op_by_op(build, storage);
  CompileOptions options;
  options.sizes = sizes;
  options.storage = storage;
  options.rates = h200_rates();
  const Plan plan = compile(b.graph, b.request, options).plan;
  std::vector<Values> inputs;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    inputs.push_back(realistic_inputs(b, sizes, 100 + seed, 16));
  }
  try {
    const auto on_gpu = [&](const Values& values) { return run_on_gpu(plan, sizes, values); };
    for (const auto& [name, ratio] : error_ratios(b, on_gpu, op_by_op, sizes, inputs)) {
      EXPECT_LE(ratio.value() - 3 * ratio.standard_error(), ratio.bound())
          << name << ": " << ratio.value() << " +- " << ratio.standard_error();
    }
    const Tensors first = on_gpu(inputs.front());
    const Tensors again = on_gpu(inputs.front());
    for (const auto& [name, bytes] : first.bytes()) {
      EXPECT_EQ(bytes, again.bytes().at(name)) << name << " differs from run to run";
    }
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PlansOnGpu,
                         ::testing::Combine(::testing::Range<size_t>(0, 5),
                                            ::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(cases()[std::get<0>(info.param)].name) + "_" +
                                  std::string(name_of(std::get<1>(info.param))) +
                                  (std::get<2>(info.param) ? "_ragged" : "");
                         });

}  // namespace
}  // namespace coda
