// SPDX-License-Identifier: Apache-2.0
// A step's update where a backend has memory of its own: weights, moments and gradients stay there,
// and nothing waits for the host, nor the host for it. The global norm and AdamW are programs (see
// coda/program.h), so whatever backend runs the model runs them too.
//
// All parameters are one matrix [R, kRowElements] of rows in the order of the weights, each
// parameter from the start of a row; weights, moments, gradients and the 16-bit copies are such
// matrices, so that AdamW of all parameters is one launch. What lies between two parameters is 0
// and stays 0.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "coda/backend.h"
#include "coda/trainer.h"

namespace coda {

class DeviceUpdate {
 public:
  // clip: the largest norm of a step's gradients, 0: any. The backend must outlive it.
  DeviceUpdate(Backend& backend, const Weights& weights, const AdamWOptions& options, double clip);

  // All of the state, to the backend and back.
  void upload(Weights& weights, std::vector<Moments>& moments);
  void download(Weights& weights, std::vector<Moments>& moments) const;

  // What a plan reads, by name.
  const TensorMap& parameters() const { return parameters_; }
  // fp32, as the weights.
  const std::vector<Tensor>& gradients() const { return gradients_; }
  void clear_gradients();

  // Behind a pass's forward: if its loss is not finite, no later step changes the state until
  // restore_soundness().
  void check_loss(const Tensor& loss);
  // AdamW's step `step` (1, 2, ...) as adamw_step has it, with gradients scaled to the largest
  // norm. Nothing waits for it. If the norm, or a loss since the last step, is not finite, this and
  // later steps leave the state as it was.
  void start_step(double rate, int64_t step);
  // Of the gradients of the last step, before scaling; fp32 [1, 1].
  const Tensor& norm() const { return norm_; }
  // 1, or 0 since a loss or a norm was not finite; fp32 [1, 1].
  const Tensor& is_sound() const { return is_sound_; }
  void restore_soundness() { is_sound_.fill(1); }

 private:
  enum Matrix { master, copy, m, v, gradient, kMatrices };
  struct Launch {
    std::unique_ptr<Kernel> kernel;
    std::vector<TensorView> tensors;
  };

  // Rows of one parameter in a matrix, as the parameter's own shape.
  TensorView part(Matrix matrix, size_t weight) const;

  Backend& backend_;
  AdamWOptions options_;
  struct Part {
    int64_t first_row = 0;
    int64_t rows = 0;  // of the parameter
    int64_t cols = 0;
  };
  std::vector<Part> parts_;  // as the weights
  Tensor matrices_[kMatrices];
  std::vector<Tensor> kept_;  // what the programs hand on
  Tensor numbers_;            // of this step: see kNumbers
  BackendMemory staged_[2];   // numbers_ of this step and the one before, on the host
  int64_t steps_ = 0;
  Tensor norm_;
  Tensor is_sound_;  // 1, or 0 since something was not finite
  TensorMap parameters_;
  std::vector<Tensor> gradients_;
  Launch loss_check_;
  size_t loss_place_ = 0;  // among its tensors
  std::vector<Launch> launches_;
  std::function<void()> recorded_;
};

}  // namespace coda
