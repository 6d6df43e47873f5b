// SPDX-License-Identifier: Apache-2.0
// The table of reductions. Each row describes a kind: its names, the lanes of its partials, its
// float64 meaning and its form in a Graph. A program reduces in two phases: each 64 columns (or
// rows) of a tile give one partial, which has one or two lanes; a finalizer combines the partials
// and computes a result.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "coda/api.h"
#include "coda/elementwise.h"

namespace CODA_API coda {

enum class PartialKind : uint8_t {
  sum,
  max,          // NaN if any value is
  log_sum_exp,  // lanes: max, sum of exp(x - max)
  mean_m2,      // lanes: mean, M2 = sum of (x - mean)²; merged by Chan's formula
  abs_max,      // the largest |x|, for 8-bit scales
  // The entropy of softmax(x), in one pass. Lanes: max, sum of e = exp(x - max), sum of (x - max)
  // e. NaN if the largest value is infinite.
  entropy,
};
inline constexpr int kPartialKindCount = static_cast<int>(PartialKind::entropy) + 1;
inline constexpr int kMostPartialLanes = 3;

// For a kind with several results: the sum of the first two.
inline constexpr int kBothResults = -1;

// Numbers behind the lanes of a kind are ignored.
using PartialLanes = std::array<double, kMostPartialLanes>;

struct PartialInfo {
  PartialKind kind;
  std::string_view name;   // in the text of programs
  std::string_view label;  // in names of a plan's tensors: x_lse
  char letter;             // in names of program classes (docs/configurations.md)

  // 1 to 3. A kind with one lane is a plain fold: it combines partials in the same way as values.
  int lanes;
  // Several lanes: names of a finalizer's results, one for each lane.
  std::array<std::string_view, kMostPartialLanes> results = {};
  std::string_view both = {};  // name of the sum of the first two results, if it is useful
  double (*result)(const PartialLanes& lanes, int which) = nullptr;  // null: the lane itself
  bool needs_count = false;  // combining partials needs the number of values in each

  // The float64 meaning, against which every backend is tested: the partial of one value, and of
  // two parts with given numbers of values.
  PartialLanes (*of)(double x);
  PartialLanes (*merge)(const PartialLanes& a, double count_a, const PartialLanes& b,
                        double count_b);

  // In a Graph a reduction has a single value: one result or the sum of the first two. Expressions
  // (coda/elementwise.h) use a for the values and b for their mean if the count is needed, else for
  // their reduction of kind `second`.
  int value = 0;  // number of the result, or kBothResults
  std::optional<PartialKind> second = {};
  std::string_view of_one;      // the reduction of a single value
  std::string_view derivative;  // g times the derivative of the reduction y by each value a
  // The result is one of the values (max). Values that equal it share its gradient evenly: g is
  // then one share, and the other values get 0.
  bool picks = false;

  // What finalizers call the result that a Graph has; empty for a kind with one lane.
  std::string_view whole() const {
    return value == kBothResults ? both : results[static_cast<size_t>(value)];
  }
};

const PartialInfo& info(PartialKind kind);
std::optional<PartialKind> partial_by_name(std::string_view name);

// reduce: the lanes of the partial of some values. result_of: result `result` of them (or
// kBothResults).
PartialLanes reduce(PartialKind kind, std::span<const double> values);
double result_of(PartialKind kind, const PartialLanes& lanes, int result);

}  // namespace CODA_API coda
