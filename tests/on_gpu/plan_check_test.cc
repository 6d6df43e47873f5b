// SPDX-License-Identifier: Apache-2.0
// Compiled plans of whole blocks and models on the GPU, forward and backward, with poisoned memory:
// every output and gradient within the error contract of docs/numerics.md, over all seeds and of
// each, and the same bits from
// run to run. Needs a GPU; skipped elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"
#include "gpu/gpu_backend.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"

namespace coda::tests {
namespace {

Backend& backend() {
  static const std::unique_ptr<Backend> one = gpu::make_gpu_backend();
  return *one;
}

Tensors run_on_gpu(const Plan& plan, const ModelSizes& sizes, const Values& inputs) {
  const Stream stream = Stream::make();
  backend().use_stream(stream);
  Session session(plan, backend(), dims_of(sizes), {.timing = false, .poison = true});
  BoundTensors tensors(session, inputs, stream);
  run_both_phases(session);
  return tensors.download();
}

using PlansOnGpu = OnGpuWith<std::tuple<size_t, DType, bool>>;

TEST_P(PlansOnGpu, ErrorsAreAtMostThoseOfTheComputationOpByOp) {
  const auto [which, storage, ragged] = GetParam();
  constexpr int kSeeds = 8;
  const ModelSizes sizes = ragged ? ragged_sizes() : even_sizes();
  const PlanCase& plan_case = plan_cases()[which];
  Block b;
  const Plan plan = plan_of(plan_case, sizes, storage, b);
  const OpByOp op_by_op([&](Block& block) { plan_case.build(block, sizes.model); }, storage);
  std::vector<Values> inputs;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    inputs.push_back(model_inputs(b, sizes, 100 + seed));
  try {
    const auto on_gpu = [&](const Values& values) { return run_on_gpu(plan, sizes, values); };
    expect_contract(error_ratios(b, on_gpu, op_by_op, dims_of(sizes), inputs));
    EXPECT_THAT(different(on_gpu(inputs.front()), on_gpu(inputs.front())), ::testing::IsEmpty())
        << "from run to run";
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PlansOnGpu,
                         ::testing::Combine(::testing::Range<size_t>(0, plan_cases().size()),
                                            ::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(plan_cases()[std::get<0>(info.param)].name) + "_" +
                                  std::string(name_of(std::get<1>(info.param))) +
                                  (std::get<2>(info.param) ? "_ragged" : "");
                         });

}  // namespace
}  // namespace coda::tests
