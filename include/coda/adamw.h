// SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter) with PyTorch's semantics, over flat fp32 master weights; one pass
// also writes the bf16 copy that the model computes with. Elementwise, so the same bits for any
// number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "coda/api.h"
#include "coda/dtype.h"

namespace CODA_API coda {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // f32, or bf16: both moments are kept rounded to nearest even, and the step that makes them uses
  // them unrounded. On a GPU, and of several processes, they take half the memory then.
  DType moments = DType::f32;
};

// One parameter; all spans have its number of elements, but `bf16`, which may be empty.
struct AdamWTensor {
  std::span<float> weights;  // fp32 master
  std::span<float> m;        // mean of gradients; 0 before the first step
  std::span<float> v;        // mean of squared gradients; 0 before the first step
  std::span<const float> gradients;
  std::span<uint16_t> bf16;  // the weights rounded to nearest even
  bool decay = true;         // false for norms and biases
};

// Throws Error for options that have no meaning: betas outside [0, 1), a negative eps or decay,
// other types of moments; and for moments in bf16 that would never fade, as a beta is above 1 -
// 1/256.
void check_adamw(const AdamWOptions& options);

// Step `step` (1, 2, ...) with gradients times `gradient_scale` (see clip_scale). Throws Error as
// check_adamw does, and for a negative rate.
void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options,
                double learning_rate, int64_t step, double gradient_scale = 1);

}  // namespace CODA_API coda
