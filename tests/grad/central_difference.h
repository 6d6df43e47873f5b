// SPDX-License-Identifier: Apache-2.0
// The slope of an objective, by which gradients are judged.
#pragma once

namespace coda::tests {

// (f(x + step) - f(x - step)) / (2 step), where `objective()` reads x; x is then as it was.
template <class Objective>
double central_difference(double& x, double step, const Objective& objective) {
  const double kept = x;
  x = kept + step;
  const double up = objective();
  x = kept - step;
  const double down = objective();
  x = kept;
  return (up - down) / (2 * step);
}

}  // namespace coda::tests
