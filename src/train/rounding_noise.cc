// SPDX-License-Identifier: Apache-2.0
// Chooses the seed, row and column of each random number (random of docs/program-text.md).
#include "train/rounding_noise.h"

#include <algorithm>

#include "base/rounding.h"
#include "coda/error.h"

namespace coda {
namespace {

constexpr int kTensors = 4;                   // the weight and at most three states
constexpr int64_t kExact = int64_t{1} << 24;  // fp32 has all whole numbers up to here

}  // namespace

bool has_noise(const Optimizer& optimizer) {
  return optimizer.weights == DType::bf16 ||
         std::ranges::any_of(optimizer.states, [](const OptimizerState& state) {
           return state.dtype == DType::bf16;
         });
}

Optimizer with_noise(Optimizer optimizer) {
  if (!has_noise(optimizer)) return optimizer;
  require(std::ssize(optimizer.states) < kTensors,
          optimizer.name + ": " + std::to_string(optimizer.states.size()) +
              " states, and stochastic rounding is for at most 3: store all in fp32");
  optimizer.scalars.push_back({kNoise, [seed = optimizer.seed](double, int64_t step) {
                                 return noise_of_step(seed, step);
                               }});
  return optimizer;
}

double noise_of_step(uint64_t seed, int64_t step) {
  const uint64_t start = seed * 0x9E3779B97F4A7C15ULL >> 32;
  return static_cast<double>((start + static_cast<uint64_t>(step)) * kTensors % kExact);
}

std::string rounded_stochastically(const std::string& value, int tensor) {
  const std::string seed =
      "scalar(" + std::string(kNoise) + ")" + (tensor > 0 ? " + " + std::to_string(tensor) : "");
  return "stochastic_bf16(" + value + ", random(" + seed + ", per_row(" + kNoiseRows +
         "[R]), column_index()))";
}

std::vector<int64_t> noise_rows(std::span<const int64_t> elements) {
  std::vector<int64_t> first = {0};
  for (const int64_t count : elements)
    first.push_back(first.back() + ceil_div(count, kNoiseColumns));
  require(first.back() <= kExact,
          "stochastic rounding is for at most 8.6e9 weights: store weights and states in fp32");
  return first;
}

}  // namespace coda
