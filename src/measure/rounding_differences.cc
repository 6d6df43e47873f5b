// SPDX-License-Identifier: Apache-2.0
// Decides which differences between two results are rounding errors. Rounding errors change if the
// inputs change slightly; the effect of a bug does not. So a difference is a rounding error if one
// of four random perturbations of the inputs changes it by more than 25 %. The rounding error of a
// small number has only a few possible values, so it may stay the same. Therefore a difference is
// also a rounding error if it is at most four times the largest one that the perturbations showed
// in the same array.
#include "measure/rounding_differences.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace coda::measure {
namespace {

constexpr int kChanges = 4;
constexpr double kLargestChange = 0x1p-30;
constexpr double kReproduced = 0.25;  // largest relative change of a difference that is an error
constexpr double kMostRoundings = 4;  // times the array's largest rounding error

using Numbers = std::map<std::string, std::vector<double>>;

Numbers differences_of(const StoredAndWanted& both) {
  Numbers all;
  for (const auto& [name, stored] : both.stored) {
    const auto wanted = both.wanted.find(name);
    if (wanted == both.wanted.end() || wanted->second.values.size() != stored.values.size())
      continue;
    std::vector<double>& of_name = all[name];
    for (size_t i = 0; i < stored.values.size(); ++i)
      of_name.push_back(stored.values[i] - wanted->second.values[i]);
  }
  return all;
}

// The largest deviation among the elements whose differences changed under a perturbation.
double largest_rounding(const std::vector<double>& differences,
                        const std::vector<double>& deviations) {
  double largest = 0;
  for (size_t i = 0; i < differences.size(); ++i)
    if (deviations[i] > kReproduced * std::abs(differences[i]))
      largest = std::max(largest, deviations[i]);
  return largest;
}

}  // namespace

void remove_rounding(StoredAndWanted& both, const program::TensorValues& inputs,
                     const std::function<bool(const std::string&)>& is_changed,
                     const std::function<StoredAndWanted(const program::TensorValues&)>& both_at) {
  const Numbers own = differences_of(both);
  Numbers deviations;  // the largest of each element
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> change(-kLargestChange, kLargestChange);
  for (int i = 0; i < kChanges; ++i) {
    program::TensorValues changed = inputs;
    for (auto& [name, values] : changed) {
      if (!is_changed(name)) continue;
      for (double& x : values) x *= 1 + change(random);
    }
    for (const auto& [name, others] : differences_of(both_at(changed))) {
      const std::vector<double>& differences = own.at(name);
      std::vector<double>& largest = deviations[name];
      largest.resize(differences.size());
      for (size_t e = 0; e < differences.size(); ++e) {
        const double deviation = std::abs(others[e] - differences[e]);
        if (std::isfinite(deviation)) largest[e] = std::max(largest[e], deviation);
      }
    }
  }
  for (const auto& [name, largest] : deviations) {
    const std::vector<double>& differences = own.at(name);
    const double rounding = kMostRoundings * largest_rounding(differences, largest);
    for (size_t e = 0; e < largest.size(); ++e) {
      const double size = std::abs(differences[e]);
      if (largest[e] > kReproduced * size || size <= rounding)
        both.stored.at(name).values[e] = both.wanted.at(name).values[e];
    }
  }
}

}  // namespace coda::measure
