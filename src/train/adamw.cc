// SPDX-License-Identifier: Apache-2.0
// AdamW by blocks that stay in the first-level cache between the update and the rounding to bf16.
// Plain loops, which the compiler vectorises; products are not contracted into sums (standard C++),
// so every element sees the same roundings.
#include "coda/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "coda/error.h"
#include "coda/float16.h"

namespace coda {
namespace {

constexpr size_t kBlock = 2048;  // elements; 4 arrays of 8 KiB

struct Coefficients {
  float gradient_scale;
  float m_rate;      // 1 - beta1
  float v_keep;      // beta2
  float v_rate;      // 1 - beta2
  float root_scale;  // 1 / sqrt(1 - beta2^step)
  float eps;
  float step_size;  // rate / (1 - beta1^step)
};

void update(float* __restrict weights, float* __restrict m, float* __restrict v,
            const float* __restrict gradients, size_t count, float keep, const Coefficients& c) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradients[i] * c.gradient_scale;
    const float mean = m[i] + c.m_rate * (g - m[i]);
    const float square = c.v_keep * v[i] + c.v_rate * (g * g);
    m[i] = mean;
    v[i] = square;
    weights[i] =
        keep * weights[i] - c.step_size * (mean / (std::sqrt(square) * c.root_scale + c.eps));
  }
}

void round_to_bf16(float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] = float_from_bf16(bf16_from_float(values[i]));
}

struct Block {
  const AdamWTensor* tensor;
  size_t begin;
};

}  // namespace

void check_adamw(const AdamWOptions& options) {
  const auto is_share = [](double x) { return x >= 0 && x < 1; };
  require(is_share(options.beta1) && is_share(options.beta2),
          "AdamW: beta1 and beta2 must be at least 0 and below 1, not " +
              std::to_string(options.beta1) + " and " + std::to_string(options.beta2));
  require(std::isfinite(options.eps) && options.eps >= 0,
          "AdamW: eps must be a number from 0, not " + std::to_string(options.eps));
  require(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
          "AdamW: the weight decay must be a number from 0, not " +
              std::to_string(options.weight_decay));
  require(options.moments == DType::f32 || options.moments == DType::bf16,
          "AdamW: moments are f32 or bf16, not " + std::string(name_of(options.moments)));
  // A number of 8 bits that loses less than 1/256 of itself is rounded back to what it was.
  require(options.moments == DType::f32 || std::max(options.beta1, options.beta2) <= 1 - 1.0 / 256,
          "AdamW: moments in bf16 would never fade with betas of " + std::to_string(options.beta1) +
              " and " + std::to_string(options.beta2) +
              ": take betas up to 0.996, or moments in fp32");
}

void adamw_step(std::span<const AdamWTensor> tensors, const AdamWOptions& options,
                double learning_rate, int64_t step, double gradient_scale) {
  check_adamw(options);
  require(std::isfinite(learning_rate) && learning_rate >= 0,
          "AdamW: the learning rate must be a number from 0, not " + std::to_string(learning_rate));
  invariant(step >= 1, "adamw_step: steps count from 1");
  std::vector<Block> blocks;
  for (const AdamWTensor& tensor : tensors) {
    const size_t count = tensor.weights.size();
    invariant(tensor.m.size() == count && tensor.v.size() == count &&
                  tensor.gradients.size() == count &&
                  (tensor.bf16.empty() || tensor.bf16.size() == count),
              "adamw_step: the arrays of a tensor differ in size");
    for (size_t begin = 0; begin < count; begin += kBlock) blocks.push_back({&tensor, begin});
  }
  const auto steps = static_cast<double>(step);
  const Coefficients coefficients = {
      .gradient_scale = static_cast<float>(gradient_scale),
      .m_rate = static_cast<float>(1 - options.beta1),
      .v_keep = static_cast<float>(options.beta2),
      .v_rate = static_cast<float>(1 - options.beta2),
      .root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, steps))),
      .eps = static_cast<float>(options.eps),
      .step_size = static_cast<float>(learning_rate / (1 - std::pow(options.beta1, steps))),
  };
  const auto decayed = static_cast<float>(1 - learning_rate * options.weight_decay);
#pragma omp parallel for schedule(static)
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto& [tensor, begin] = blocks[b];
    const size_t count = std::min(kBlock, tensor->weights.size() - begin);
    float* weights = tensor->weights.data() + begin;
    update(weights, tensor->m.data() + begin, tensor->v.data() + begin,
           tensor->gradients.data() + begin, count, tensor->decay ? decayed : 1.0f, coefficients);
    if (options.moments == DType::bf16) {
      round_to_bf16(tensor->m.data() + begin, count);
      round_to_bf16(tensor->v.data() + begin, count);
    }
    if (tensor->bf16.empty()) continue;
    uint16_t* bf16 = tensor->bf16.data() + begin;
    for (size_t i = 0; i < count; ++i) bf16[i] = bf16_from_float(weights[i]);
  }
}

}  // namespace coda
