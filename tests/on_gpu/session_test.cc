// SPDX-License-Identifier: Apache-2.0
// Whole blocks and models on the GPU through a session, with the public device tensors: forward and
// backward give the same bits at every run, with poisoned outputs and memory, from a CUDA graph
// that captured a run, and with other work on the GPU. (That they are right: plan_check_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "coda/program_builder.h"
#include "gpu/gpu_backend.h"
#include "gpu/launch/captured_graph.h"
#include "gpu/lower.h"
#include "on_gpu/device_run.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"

namespace coda::tests {
namespace {

using ::testing::IsEmpty;

// Nothing is a multiple of a tile; rows start at multiples of 16 bytes but for the logits'.
ModelSizes session_sizes() {
  return {.model = {.hidden = 192,
                    .heads = 3,
                    .kv_heads = 1,
                    .head_dim = 64,
                    .mlp = 200,
                    .vocab = 131,
                    .sequence = 35},
          .tokens = 70};
}

using SessionOnGpu = OnGpuWith<size_t>;

// A session of a model with its tensors, on a stream of its own.
struct ModelSession {
  Block block;
  Stream stream = Stream::make();
  std::unique_ptr<Backend> backend = gpu::make_gpu_backend();
  std::optional<Session> session;
  std::optional<BoundTensors> tensors;

  explicit ModelSession(size_t which, bool own_results = false) {
    const ModelSizes sizes = session_sizes();
    const Plan plan = plan_of(plan_cases()[which], sizes, DType::bf16, block);
    backend->use_stream(stream);
    session.emplace(plan, *backend, dims_of(sizes),
                    SessionOptions{.timing = false, .poison = true, .own_results = own_results});
    tensors.emplace(*session, model_inputs(block, sizes, 7), stream);
  }

  void run() { run_both_phases(*session); }
};

void expect_finite(const BoundTensors& tensors, const Tensors& values) {
  for (const std::string& name : tensors.outputs())
    for (const double x : values.get(name)) ASSERT_TRUE(std::isfinite(x)) << name;
}

TEST_P(SessionOnGpu, EveryRunAndACapturedOneGiveTheSameBits) {
  ModelSession model(GetParam());
  model.run();
  const Tensors first = model.tensors->download();
  expect_finite(*model.tensors, first);
  for (int i = 0; i < 3; ++i) {
    model.tensors->poison_outputs();
    model.run();
    EXPECT_THAT(different(first, model.tensors->download()), IsEmpty()) << "in run " << i;
  }
  const gpu::Context context;
  const gpu::Context::Scope scope(context);
  const gpu::CapturedGraph graph(model.stream.handle(), [&] { model.run(); });
  for (int i = 0; i < 3; ++i) {
    model.tensors->poison_outputs();
    graph.run(model.stream.handle());
    EXPECT_THAT(different(first, model.tensors->download()), IsEmpty()) << "in captured run " << i;
  }
}

TEST_P(SessionOnGpu, ItsOwnResultsHaveTheSameBitsInLessMemory) {
  ModelSession bound(GetParam());
  bound.run();
  const Tensors expected = bound.tensors->download();
  ModelSession own(GetParam(), true);
  ASSERT_FALSE(own.tensors->own().empty());
  for (int i = 0; i < 3; ++i) {
    own.run();
    EXPECT_THAT(different(expected, own.tensors->download()), IsEmpty()) << "in run " << i;
  }
  const auto bytes = [](const ModelSession& model) {
    int64_t sum = model.session->saved_bytes() + model.session->arena_bytes();
    for (const std::string& name : model.tensors->outputs()) {
      const TensorView view = model.session->view(name);
      sum += view.rows * view.row_stride * size_of(view.dtype);
    }
    return sum;
  };
  EXPECT_LT(bytes(own), bytes(bound));
}

// Work of somebody else on another stream: products that fill the GPU, and copies.
class OtherWork {
 public:
  OtherWork() {
    const gpu::Context::Scope scope(*gpu()->context);
    state_->context = gpu()->context;
    state_->kernels = std::make_unique<gpu::LoadedKernels>(gpu()->context, gpu::CacheOptions{});
    state_->stream = stream_.handle();
    ProgramBuilder p("other_product");
    p.store("y:bf16", p.gemm("x[M, K]:bf16", "w[N, K]:bf16", "nt"));
    const Program program = p.build();
    const DimValues sizes{{"M", kSize}, {"N", kSize}, {"K", kSize}};
    kernel_.emplace(state_, program.name, kernel_tensors(program),
                    [=](std::span<const int64_t>) { return gpu::lower(program, sizes, {}); });
    for (int i = 0; i < 4; ++i) {
      tensors_.emplace_back(DType::bf16, kSize, kSize, stream_);
      tensors_.back().fill_bytes(0x3c, stream_);
    }
  }

  // Of about as many milliseconds.
  void enqueue(int times) {
    const gpu::Context::Scope scope(*gpu()->context);
    for (int i = 0; i < times; ++i) {
      kernel_->run(
          std::vector<TensorView>{tensors_[0].view(), tensors_[1].view(), tensors_[2].view()});
      gpu::copy_on_device(tensors_[2].view(), tensors_[3].view(), stream_.handle());
    }
  }
  void wait() const { stream_.synchronize(); }

 private:
  static constexpr int64_t kSize = 8192;

  Stream stream_ = Stream::make();
  std::shared_ptr<gpu::GpuState> state_ = std::make_shared<gpu::GpuState>();
  std::optional<gpu::LaunchedKernel> kernel_;
  std::vector<DeviceTensor> tensors_;
};

TEST_P(SessionOnGpu, OtherWorkOnTheGpuChangesNoBit) {
  ModelSession model(GetParam());
  model.run();
  const Tensors alone = model.tensors->download();
  expect_finite(*model.tensors, alone);
  OtherWork other;
  for (int i = 0; i < 20; ++i) {
    other.enqueue(4);
    model.tensors->poison_outputs();
    model.run();
    ASSERT_THAT(different(alone, model.tensors->download()), IsEmpty()) << "in run " << i;
  }
  other.wait();
}

INSTANTIATE_TEST_SUITE_P(Models, SessionOnGpu, ::testing::Range<size_t>(0, 3),
                         [](const auto& info) { return plan_cases()[info.param].name; });

}  // namespace
}  // namespace coda::tests
