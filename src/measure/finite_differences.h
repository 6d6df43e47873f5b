// SPDX-License-Identifier: Apache-2.0
// Compares a gradient with finite differences along a random direction.
#pragma once

#include <functional>
#include <random>
#include <span>
#include <vector>

namespace coda::measure {

std::vector<double> random_values(size_t count, std::mt19937_64& random);  // from -1 to 1

// How far the change of a number along a random direction is from what `gradient` says of it, of
// the size of both. `at(direction, step)` is the number where the input is moved by step *
// direction. `noise`: gradients that are as small beside the number count as noise.
double gradient_error(std::span<const double> gradient, double noise, std::mt19937_64& random,
                      const std::function<double(const std::vector<double>&, double)>& at,
                      double bound);

}  // namespace coda::measure
