// SPDX-License-Identifier: Apache-2.0
// The table of reductions: one row a kind, with its words, what a partial of it holds, its meaning
// in float64 and its place in a Graph. A program reduces by partials: 64 columns (or rows) of a
// tile leave one, which are the kind's lanes; a finalizer combines them and takes a result.
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
  mean_m2,      // lanes: mean, M2 = sum of (x - mean)^2; merged as Chan does
  abs_max,      // the largest |x|, for scales
};
inline constexpr int kPartialKindCount = static_cast<int>(PartialKind::abs_max) + 1;

// Of a kind with two results: both added.
inline constexpr int kBothResults = -1;

// Of a kind with one lane the second number is not used.
using PartialLanes = std::array<double, 2>;

struct PartialInfo {
  PartialKind kind;
  std::string_view name;   // in the text of programs
  std::string_view label;  // in the names of a plan's tensors: x_lse
  char letter;             // in the names of classes of programs (docs/configurations.md)

  // One lane: a fold, which reads each value once and combines partials as it does values.
  int lanes;
  std::array<std::string_view, 2> results = {};  // of two lanes: names of what a finalizer takes
  std::string_view both = {};              // both results added, where that is of use: its name
  std::optional<Elementwise> finish = {};  // what makes the last lane the last result
  bool needs_count = false;  // to combine partials one must know how many values each is of

  // The meaning, which every backend's code is checked against: of one value, and of two parts that
  // are of so many values.
  PartialLanes (*of)(double x);
  PartialLanes (*merge)(const PartialLanes& a, double count_a, const PartialLanes& b,
                        double count_b);

  // In a Graph a reduction has one value: a result, or both results added. Expressions (see
  // coda/elementwise.h) are over a, the values, and where the count is needed b, their mean.
  int value = 0;                // kBothResults, or the number of the result
  std::string_view of_one;      // the value of the reduction of one value
  std::string_view derivative;  // g times that of the value y by each a
  // y is the of_one of certain values, which share its gradient evenly: g is then the share of one
  // of them, and the others get none.
  bool picks = false;
};

const PartialInfo& info(PartialKind kind);
std::optional<PartialKind> partial_by_name(std::string_view name);

// The lanes of the partial of some values; result `result` of them (or kBothResults).
PartialLanes reduce(PartialKind kind, std::span<const double> values);
double result_of(PartialKind kind, const PartialLanes& lanes, int result);

}  // namespace CODA_API coda
