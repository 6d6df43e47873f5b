// SPDX-License-Identifier: Apache-2.0
// Maintains the scales of a plan's 8-bit operands. After each training step, the remembered
// magnitude becomes the larger of the step's magnitude and a decayed old value; the scale maps the
// power of two nearest to it to 128. Scales are in the backend's memory and updated by a program,
// so nothing waits for the host. They depend on the data of all earlier steps, so they belong to
// the state of a run.
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
  // `communicator`: null for a single process; otherwise magnitudes are maxima over all processes.
  // The communicator and the backend must outlive this object.
  EightBitScales(Backend& backend, std::vector<float> first, Communicator* communicator);

  void bind(Session& session) const;

  // Whether the scales have seen a batch or were restored. Before, gradients may be lost in 8 bits.
  bool are_known() const { return are_known_; }
  // Called before the microbatches of a training step.
  void start_step() { clear(largest_); }
  // Called before the copies of parameters are remade with the scales of the next step.
  void start_copies() { clear(of_parameters_); }
  // Called after the microbatches of a training step: computes the scales of the next. They stay
  // unchanged if `sound`, fp32 [1, 1] in the backend's memory, is 0, and for an operand whose
  // largest magnitude is not finite.
  void finish_step(const Tensor& sound);
  void finish_step() { finish_step(always_); }
  // Called before a run begins. A gradient's magnitude is valid only once the gradients that it
  // depends on have scales, so several microbatches are run. Only the last one is remembered.
  void learn(const std::function<void()>& pass);
  void set_known() { are_known_ = true; }

  // Three numbers per scale: the remembered magnitude, the scale, its inverse. Restoring an empty
  // state starts anew. Throws Error for a wrong number of scales.
  std::vector<float> state() const;
  void restore(const std::vector<float>& state);

 private:
  static void set(Tensor& vector, const std::vector<float>& values);
  // Asynchronous, unlike Tensor::fill.
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
  std::unique_ptr<Kernel> join_;  // merges parameters' magnitudes into largest_
  std::unique_ptr<Kernel> update_;
};

}  // namespace coda
