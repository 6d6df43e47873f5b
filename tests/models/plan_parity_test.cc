// SPDX-License-Identifier: Apache-2.0
// Compiled plans, run by the CPU backend in fp32, against transformers on PyTorch: logits, losses
// and every parameter's gradient from the same checkpoint.
#include <gtest/gtest.h>

#include "coda/model_runner.h"
#include "cpu/cpu_backend.h"
#include "models/hf_case.h"
#include "models/hf_reference.h"
#include "train/stored_weights.h"

namespace coda {
namespace {

// Each expert has a row for every token.
constexpr double kRoomForAll = 1e6;

class Judged {
 public:
  // Above 0: with sparse experts.
  explicit Judged(const std::filesystem::path& folder, double expert_capacity = 0)
      : judge_(folder), expert_capacity_(expert_capacity) {}

  bool has_experts() const { return expert_choices_of(judge_.config) > 0; }

  void expect_logits_and_losses(bool fuse) {
    ModelRunner& logits = run(ModelTask::logits, fuse, false);
    std::vector<float> all;
    for (int64_t i = 0; i < judge_.batch * judge_.sequence; ++i) {
      const auto row = logits.logits(i);
      all.insert(all.end(), row.begin(), row.end());
    }
    EXPECT_LT(relative_error(all, judge_.floats("logits")), kParityTolerance);
    ModelRunner& losses = run(ModelTask::losses, fuse, false);
    EXPECT_LT(relative_error(losses.row_losses(), judge_.floats("losses")), kParityTolerance);
  }

  // `accumulate`: in two passes over the same batch, each of half the scale.
  void expect_gradients(bool fuse, bool accumulate) {
    ModelRunner& runner = run(ModelTask::gradients, fuse, accumulate);
    EXPECT_NEAR(runner.loss(), judge_.floats("loss")[0],
                kParityTolerance * judge_.floats("loss")[0]);
    runner.backward(accumulate ? 0.5F : 1.0F);
    if (accumulate) {
      runner.forward(judge_.ids("tokens"), judge_.ids("targets"));
      runner.backward(0.5F);
    }
    for (size_t i = 0; i < weights_.size(); ++i) {
      const std::string& name = weights_[i].name;
      EXPECT_LT(relative_error(runner.gradient(i), judge_.floats("grad." + name)), kParityTolerance)
          << name;
    }
  }

 private:
  // A forward of the judge's batch.
  ModelRunner& run(ModelTask task, bool fuse, bool accumulate) {
    runner_ = std::make_unique<ModelRunner>(judge_.config,
                                            ModelRunnerOptions{.task = task,
                                                               .batch = judge_.batch,
                                                               .sequence = judge_.sequence,
                                                               .accumulate = accumulate,
                                                               .fuse = fuse,
                                                               .expert_capacity = expert_capacity_},
                                            *backend_);
    weights_ = load_weights(runner_->model(), judge_.weights);
    runner_->bind(tensors_of(weights_, *backend_));
    runner_->forward(judge_.ids("tokens"), judge_.ids("targets"));
    return *runner_;
  }

  HfCase judge_;
  double expert_capacity_;
  std::unique_ptr<Backend> backend_ = cpu::make_cpu_backend({.threads = 1});
  std::unique_ptr<ModelRunner> runner_;
  Weights weights_;
};

TEST(Parity, CompiledPlansGiveWhatTransformersGives) {
  std::string why;
  const auto folder = hf_reference(why);
  if (!folder) GTEST_SKIP() << why;
  const auto cases = hf_cases(*folder);
  EXPECT_EQ(cases.size(), 34u) << "the judge's cases";
  int with_experts = 0;
  for (const auto& path : cases) {
    SCOPED_TRACE(path.filename().string());
    Judged one(path);
    // How plans run is the same for all models, so the first two stand for the rest.
    const std::string name = path.filename().string();
    if (!name.starts_with("llama") && !name.starts_with("gpt2")) {
      one.expect_logits_and_losses(true);
      one.expect_gradients(true, false);
      if (one.has_experts()) {
        Judged sparse(path, kRoomForAll);
        sparse.expect_logits_and_losses(true);
        sparse.expect_gradients(true, true);
        ++with_experts;
      }
      continue;
    }
    for (bool fuse : {true, false}) {
      SCOPED_TRACE(fuse ? "fused" : "unfused");
      one.expect_logits_and_losses(fuse);
      one.expect_gradients(fuse, false);
      one.expect_gradients(fuse, true);
    }
  }
  EXPECT_EQ(with_experts, 3) << "Mixtral, OLMoE and Qwen3-MoE";
}

}  // namespace
}  // namespace coda
