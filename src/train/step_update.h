// SPDX-License-Identifier: Apache-2.0
// What a training step does behind its microbatches: the gradients' norm, and the optimizer's
// update of the weights. A trainer does not know where the state is: in its own fields
// (HostUpdate), or in matrices of the backend's memory, which several processes may share
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

  // Memory that it lends the session for gradients; none: the session has some.
  virtual GradientMemory gradients() const { return {}; }
  // Before the first step: the session that makes the gradients, which must outlive this.
  virtual void bind(GradientSession& session) = 0;

  // Before a step's microbatches: their losses are added up from 0, and their gradients where there
  // are several.
  virtual void start_microbatches() = 0;
  // What it does in a microbatch that is the step's first, or last.
  virtual GradientSession::Beside beside(bool is_first, bool is_last) = 0;
  // The optimizer's step `step` (1, 2, ...). A call of the result waits for it. If the norm, or a
  // loss of any process since the last step, is not finite, this and later steps leave the state as
  // it was until restore_soundness(). `asks_to_stop` is told to all processes.
  virtual std::function<StepReport()> start_step(double rate, int64_t step, bool asks_to_stop) = 0;
  virtual void restore_soundness() = 0;

  // Between steps. All of the state, from a trainer's fields and back: what is downloaded is there
  // once a call of rank 0's result has returned, and the next update waits until it has been read.
  virtual void upload(Weights& weights, std::vector<ParameterState>& states) = 0;
  virtual std::function<void()> start_download(Weights& weights,
                                               std::vector<ParameterState>& states) = 0;
  // Whether steps leave those fields alone.
  virtual bool has_own_state() const = 0;
  // What a plan reads, by name; whole behind gather_weights() and upload().
  virtual TensorMap parameters() const = 0;
  virtual void gather_weights() {}

  // What follows is timed; null: no more.
  void profile(Profiler* profiler) { profiler_ = profiler; }
  // For people; see Trainer::exchange_text.
  const std::string& exchange_text() const { return exchange_text_; }

 protected:
  Profiler* profiler_ = nullptr;
  std::string exchange_text_;
};

// Has the plan leave squares of gradients where the update reads them.
std::unique_ptr<StepUpdate> make_update(Compiled& compiled, const Weights& weights,
                                        Backend& backend, const TrainOptions& options);

// Zeros for all states of a weight that has none. Throws Error if memory is exhausted.
void make_state(const Optimizer& optimizer, const WeightTensor& weight, ParameterState& state);

}  // namespace coda
