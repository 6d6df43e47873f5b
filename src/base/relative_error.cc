// SPDX-License-Identifier: Apache-2.0
#include "base/relative_error.h"

#include <cmath>
#include <limits>

namespace coda {

double relative_error(std::span<const double> computed, std::span<const double> reference) {
  constexpr double kInfinitelyWrong = std::numeric_limits<double>::infinity();
  if (computed.size() != reference.size()) return kInfinitelyWrong;
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double a = computed[i];
    const double b = reference[i];
    if (std::isfinite(a) && std::isfinite(b)) {
      difference += (a - b) * (a - b);
      size += b * b;
    } else if (a != b && !(std::isnan(a) && std::isnan(b))) {
      return kInfinitelyWrong;
    }
  }
  return std::sqrt(size == 0 ? difference : difference / size);
}

std::vector<double> as_stored_allows(std::span<const double> exact,
                                     std::span<const double> rounded) {
  std::vector<double> result(exact.begin(), exact.end());
  for (size_t i = 0; i < result.size(); ++i) {
    if (!std::isfinite(rounded[i])) result[i] = rounded[i];
  }
  return result;
}

}  // namespace coda
