// SPDX-License-Identifier: Apache-2.0
// The scales of a plan's 8-bit operands from step to step: the largest magnitude that is remembered
// becomes the larger of the step's and a part of what it was; the scale takes the power of two next
// to it to 128. They lie in the backend's memory and are updated by a program there, so nothing
// waits for the host. After n steps they are a function of what the steps saw: they belong to a
// run's state.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "coda/backend.h"
#include "coda/communicator.h"
#include "coda/session.h"

namespace coda {

class EightBitScales {
 public:
  // `communicator`: null where there is one process; else all see what any of them saw. Both it and
  // the backend must outlive it.
  EightBitScales(Backend& backend, std::vector<float> first, Communicator* communicator);

  void bind(Session& session) const;

  // Whether they have seen a batch, or were restored: before, a step's gradients may be lost in 8
  // bits.
  bool are_known() const { return are_known_; }
  // Before a step's passes.
  void start_step() { clear(largest_); }
  // Before the copies of parameters are made anew, with the scales of the next step.
  void start_copies() { clear(of_parameters_); }
  // Behind a step's passes: the scales of the next. Nothing changes where `sound`, fp32 [1, 1] in
  // the backend's memory, is 0; and of an operand that had no finite largest magnitude.
  void finish_step(const Tensor& sound);
  void finish_step() { finish_step(always_); }
  // Before a run begins: a gradient is known once those behind it are, so several passes tell more
  // than one. Nothing before the last is remembered.
  void learn(const std::function<void()>& pass);
  void set_known() { are_known_ = true; }

  // Three numbers a scale: what is remembered, the scale, its inverse. Restoring none starts anew.
  // Throws Error for another number of scales.
  std::vector<float> state() const;
  void restore(const std::vector<float>& state);

 private:
  static void set(Tensor& vector, const std::vector<float>& values);
  // Nothing waits for it, as it would for Tensor::fill.
  void clear(const Tensor& vector) { backend_.fill(vector.view(), std::byte{0}); }

  Backend& backend_;
  std::vector<float> first_;
  Communicator* communicator_;
  bool are_known_ = false;
  Tensor remembered_;
  Tensor scale_;
  Tensor inverse_;
  Tensor largest_;
  Tensor of_parameters_;          // kParameterMagnitudes
  Tensor always_;                 // 1
  std::unique_ptr<Kernel> join_;  // what parameters have, into largest_
  std::unique_ptr<Kernel> update_;
};

}  // namespace coda
