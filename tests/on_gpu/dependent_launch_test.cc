// SPDX-License-Identifier: Apache-2.0
// Kernels that may start before their predecessors have ended give the bits of those that may not:
// whole models, forward and backward, run after run without a pause, between copies and fills of
// the stream, and from a CUDA graph. Memory is poisoned before each phase, so that what is read too
// early shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "gpu/gpu_backend.h"
#include "gpu/launch/captured_graph.h"
#include "gpu/launch/context.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"

namespace coda::tests {
namespace {

using ::testing::IsEmpty;

struct Model {
  Block block;
  Stream stream = Stream::make();
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
  std::optional<BoundTensors> tensors;

  Model(const PlanCase& which, const ModelSizes& sizes, bool dependent_launch, bool poison) {
    gpu::GpuOptions options;
    options.dependent_launch = dependent_launch;
    backend = gpu::make_gpu_backend(options);
    backend->use_stream(stream);
    session.emplace(plan_of(which, sizes, DType::bf16, block), *backend, dims_of(sizes),
                    SessionOptions{.timing = false, .poison = poison});
    tensors.emplace(*session, model_inputs(block, sizes, 7), stream);
  }

  void run() { run_both_phases(*session); }
};

using DependentLaunch = OnGpuWith<size_t>;

TEST_P(DependentLaunch, GivesTheSameBits) {
  const PlanCase& which = plan_cases()[GetParam()];
  for (const ModelSizes& sizes : {ragged_sizes(), even_sizes()}) {
    Model ordinary(which, sizes, false, true);
    ordinary.run();
    const Tensors expected = ordinary.tensors->download();
    for (const bool poison : {true, false}) {
      Model model(which, sizes, true, poison);
      for (int i = 0; i < 4; ++i) {
        model.tensors->poison_outputs();
        for (int k = 0; k < 5; ++k) model.run();
        ASSERT_THAT(different(expected, model.tensors->download()), IsEmpty()) << "in run " << i;
      }
    }
  }
}

TEST_P(DependentLaunch, IsCapturedIntoAGraph) {
  const ModelSizes sizes = even_sizes();
  Model model(plan_cases()[GetParam()], sizes, true, true);
  model.run();
  const Tensors expected = model.tensors->download();
  const gpu::Context context;
  const gpu::Context::Scope scope(context);
  const gpu::CapturedGraph graph(model.stream.handle(), [&] { model.run(); });
  for (int i = 0; i < 4; ++i) {
    model.tensors->poison_outputs();
    for (int k = 0; k < 5; ++k) graph.run(model.stream.handle());
    ASSERT_THAT(different(expected, model.tensors->download()), IsEmpty()) << "in run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DependentLaunch, ::testing::Range<size_t>(0, 3),
                         [](const auto& info) { return plan_cases()[info.param].name; });

}  // namespace
}  // namespace coda::tests
