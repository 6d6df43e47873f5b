// SPDX-License-Identifier: Apache-2.0
// The global norm by blocks: one thread sums each block, and the blocks are added in order.
#include "coda/gradient_clip.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace coda {
namespace {

constexpr size_t kSquaresBlock = 16384;  // elements; changing it changes the bits

// Eight independent sums, which the compiler can vectorise without reordering.
double sum_of_squares(std::span<const float> values) {
  constexpr size_t kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < values.size(); ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

}  // namespace

double global_norm(std::span<const std::span<const float>> gradients) {
  std::vector<std::span<const float>> blocks;
  for (const std::span<const float> gradient : gradients) {
    for (size_t begin = 0; begin < gradient.size(); begin += kSquaresBlock) {
      blocks.push_back(gradient.subspan(begin, std::min(kSquaresBlock, gradient.size() - begin)));
    }
  }
  std::vector<double> sums(blocks.size());
#pragma omp parallel for schedule(static)
  for (size_t b = 0; b < blocks.size(); ++b) sums[b] = sum_of_squares(blocks[b]);
  double sum = 0;
  for (const double block : sums) sum += block;
  return std::sqrt(sum);
}

double clip_scale(double norm, double largest) {
  constexpr double kEps = 1e-6;  // PyTorch's
  return largest > 0 ? std::min(1.0, largest / (norm + kEps)) : 1.0;
}

}  // namespace coda
