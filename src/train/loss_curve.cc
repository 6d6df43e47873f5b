// SPDX-License-Identifier: Apache-2.0
// Smoothing, shared by both plots.
#include "coda/loss_curve.h"

#include <algorithm>

namespace coda {

std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points) {
  const auto count = static_cast<int64_t>(points.size());
  const int64_t widest = count / 80;  // on each side
  std::vector<double> sums(points.size() + 1);
  for (size_t i = 0; i < points.size(); ++i) sums[i + 1] = sums[i] + points[i].loss;
  std::vector<LossPoint> result = points;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t side = std::min({widest, i, count - 1 - i});
    if (side == 0) continue;
    const double sum =
        sums[static_cast<size_t>(i + side + 1)] - sums[static_cast<size_t>(i - side)];
    result[static_cast<size_t>(i)].loss = sum / static_cast<double>(2 * side + 1);
  }
  return result;
}

}  // namespace coda
