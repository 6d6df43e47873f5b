// SPDX-License-Identifier: Apache-2.0
// What a training step does after its microbatches: the norm of the gradients, and the optimizer's
// update of the weights. A trainer does not know where the state is stored: in the trainer's own
// fields (HostUpdate), or in matrices in the backend's memory, possibly shared by several processes
// (DeviceUpdate).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coda/trainer.h"
#include "train/gradient_session.h"

namespace coda {

class StepUpdate {
 public:
  virtual ~StepUpdate() = default;

  // Memory that the update lends the session for gradients; empty: the session uses its own.
  virtual GradientMemory gradients() const { return {}; }
  // Called before the first step. The session makes the gradients and must outlive this object.
  virtual void bind(GradientSession& session) = 0;

  // Called before the microbatches of a training step: sets the sum of the losses to 0, and the
  // gradients too if several microbatches add to them.
  virtual void start_microbatches() = 0;
  // The work that the update does during a microbatch, which may be the first or the last of the
  // training step.
  virtual GradientSession::Overlapped overlapped(bool is_first, bool is_last) = 0;
  // Starts training step number `step` (1, 2, ...). A call of the returned function waits for it.
  // If the norm is not finite, or a loss of any process since the last step is not finite, this
  // step and all later ones leave the state unchanged until restore_finiteness(). All processes
  // learn `asks_to_stop`.
  virtual std::function<StepReport()> start_step(double rate, int64_t step, bool asks_to_stop) = 0;
  virtual void restore_finiteness() = 0;

  // Called between training steps. Copies all of the state from a trainer's fields or back to them.
  // A download is complete once a call of rank 0's result has returned. The next update waits until
  // the download has read the state.
  virtual void upload(Weights& weights, std::vector<ParameterState>& states) = 0;
  virtual std::function<void()> start_download(Weights& weights,
                                               std::vector<ParameterState>& states) = 0;
  // Whether training steps leave the trainer's fields unchanged.
  virtual bool has_own_state() const = 0;
  // The tensors that a plan reads, by name. All weights are complete after gather_weights() and
  // upload().
  virtual TensorMap parameters() const = 0;
  virtual void gather_weights() {}

  // Times the following work; null: stops timing.
  void profile(Profiler* profiler) { profiler_ = profiler; }
  // A description for people; see Trainer::exchange_text.
  const std::string& exchange_text() const { return exchange_text_; }

 protected:
  Profiler* profiler_ = nullptr;
  std::string exchange_text_;
};

// Also changes the plan: its programs store squared gradients where the update reads them.
std::unique_ptr<StepUpdate> make_update(Compiled& compiled, const Weights& weights,
                                        Backend& backend, const TrainOptions& options);

// Sets all states of a weight that has none to zero. Throws Error if memory is exhausted.
void make_state(const Optimizer& optimizer, const WeightTensor& weight, ParameterState& state);

}  // namespace coda
