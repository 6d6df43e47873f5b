// SPDX-License-Identifier: Apache-2.0
#include "base/prediction.h"

#include <cmath>

namespace coda {
namespace {

// What Student's t exceeds once in 10,000 times: Cornish and Fisher's series in 1 / freedom about
// the normal distribution's quantile.
double rare_t(double freedom) {
  constexpr double z = 3.719;
  const double first = (std::pow(z, 3) + z) / 4;
  const double second = (5 * std::pow(z, 5) + 16 * std::pow(z, 3) + 3 * z) / 96;
  const double third =
      (3 * std::pow(z, 7) + 19 * std::pow(z, 5) + 17 * std::pow(z, 3) - 15 * z) / 384;
  return z + first / freedom + second / std::pow(freedom, 2) + third / std::pow(freedom, 3);
}

}  // namespace

double prediction_limit(std::span<const double> sample) {
  const auto n = static_cast<double>(sample.size());
  double mean = 0;
  double squares = 0;
  for (double x : sample) mean += x / n;
  for (double x : sample) squares += (x - mean) * (x - mean);
  return mean + rare_t(n - 1) * std::sqrt(squares / (n - 1) * (1 + 1 / n));
}

}  // namespace coda
