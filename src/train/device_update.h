// SPDX-License-Identifier: Apache-2.0
// A step's update where a backend has memory of its own: weights, moments and gradients stay there,
// and the host sees one number of a step. The global norm and AdamW are programs (see
// coda/program.h), so whatever backend runs the model runs them too.
//
// All parameters are one matrix [R, kRowElements] of rows in the order of the weights, each
// parameter from the start of a row; weights, moments, gradients and the 16-bit copies are such
// matrices, so that AdamW of all parameters is one launch. What lies between two parameters is 0
// and stays 0.
#pragma once

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

  // AdamW's step `step` (1, 2, ...) as adamw_step has it, with gradients scaled to the largest
  // norm. Returns their norm before that; if it is not finite, the state stays as it was.
  double step(double rate, int64_t step);

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
  Tensor norm_;
  TensorMap parameters_;
  std::vector<Tensor> gradients_;
  std::vector<Launch> launches_;
};

}  // namespace coda
