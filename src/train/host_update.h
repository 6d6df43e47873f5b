// SPDX-License-Identifier: Apache-2.0
// The update of a single process on the host. Weights and states are the trainer's fields,
// gradients belong to the session, and nothing is copied. Each parameter is updated separately.
#pragma once

#include "train/step_update.h"

namespace coda {

class HostUpdate : public StepUpdate {
 public:
  HostUpdate(Backend& backend, const TrainOptions& options);

  void bind(GradientSession& session) override { session_ = &session; }
  void start_microbatches() override;
  GradientSession::Overlapped overlapped(bool is_first, bool is_last) override;
  std::function<StepReport()> start_step(double rate, int64_t step, bool asks_to_stop) override;
  void restore_finiteness() override { is_finite_ = true; }
  void upload(Weights& weights, std::vector<ParameterState>& states) override;
  std::function<void()> start_download(Weights& weights,
                                       std::vector<ParameterState>& states) override;
  bool has_own_state() const override { return false; }
  TensorMap parameters() const override { return parameters_; }

 private:
  Backend& backend_;
  Optimizer optimizer_;
  double clip_;
  int64_t microbatches_;
  TensorUpdate update_;
  GradientSession* session_ = nullptr;
  std::vector<UpdatedTensor> tensors_;  // one for each weight, in their order
  TensorMap parameters_;
  double losses_ = 0;
  bool is_finite_ = true;
  Tensor finite_;  // is_finite_ as a tensor, for the scales of 8-bit operands
};

}  // namespace coda
