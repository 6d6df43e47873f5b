// SPDX-License-Identifier: Apache-2.0
#include "measure/finite_differences.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coda::measure {
namespace {

// Where the function is smooth both steps are exact to some 1e-7; where one meets a kink (a relu at
// 0), the smaller one hardly does.
constexpr double kSteps[] = {1e-5, 1e-7};
constexpr double kRoundings = 4 * std::numeric_limits<double>::epsilon();

}  // namespace

std::vector<double> random_values(size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(count);
  for (double& x : values) x = uniform(random);
  return values;
}

double gradient_error(std::span<const double> gradient, double noise, std::mt19937_64& random,
                      const std::function<double(const std::vector<double>&, double)>& at,
                      double bound) {
  double least = HUGE_VAL;
  for (const double step : kSteps) {
    const std::vector<double> direction = random_values(gradient.size(), random);
    const double above = at(direction, step);
    const double change = (above - at(direction, -step)) / (2 * step);
    double told = 0;
    double squares = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double part = gradient[i] * direction[i];
      told += part;
      squares += part * part;
    }
    // Both numbers are rounded, which must not be the difference.
    const double rounding = kRoundings * std::abs(above) / (step * bound);
    const double size = std::max(
        {std::sqrt(squares), std::abs(change) / 2, noise * (1 + std::abs(above)), rounding});
    const double error = std::abs(change - told) / size;
    if (std::isfinite(error)) least = std::min(least, error);
    if (least <= bound) break;
  }
  return least;
}

}  // namespace coda::measure
