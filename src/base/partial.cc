// SPDX-License-Identifier: Apache-2.0
#include "coda/partial.h"

#include <cmath>

namespace coda {
namespace {

using K = PartialKind;
using Lanes = PartialLanes;

// exp(x - largest), and 1 where x is the largest even if that is infinite: rows of -inf are
// defined.
double weight_below(double x, double largest) { return x == largest ? 1 : std::exp(x - largest); }

double larger(double a, double b) { return info(Elementwise::max).evaluate(a, b, 0); }

Lanes of_itself(double x) { return {x}; }

Lanes merge_sums(const Lanes& a, double, const Lanes& b, double) { return {a[0] + b[0]}; }

Lanes merge_maxima(const Lanes& a, double, const Lanes& b, double) { return {larger(a[0], b[0])}; }

Lanes merge_exponentials(const Lanes& a, double, const Lanes& b, double) {
  const double largest = larger(a[0], b[0]);
  return {largest, a[1] * weight_below(a[0], largest) + b[1] * weight_below(b[0], largest)};
}

double log_sum_result(const Lanes& lanes, int which) {
  return which == 0 ? lanes[0] : std::log(lanes[1]);
}

// Sums of (x - own) e, with e below the part's largest, as sums of (x - largest) e below a larger
// one. What weighs nothing adds nothing, however far below it lies.
double shifted_below(const Lanes& part, double largest) {
  const double weight = weight_below(part[0], largest);
  if (weight == 0) return 0;
  const double shift = part[0] == largest ? 0 : part[0] - largest;
  return weight * (part[2] + shift * part[1]);
}

Lanes merge_entropies(const Lanes& a, double count_a, const Lanes& b, double count_b) {
  Lanes merged = merge_exponentials(a, count_a, b, count_b);
  merged[2] = shifted_below(a, merged[0]) + shifted_below(b, merged[0]);
  return merged;
}

double entropy_result(const Lanes& lanes, int which) {
  if (which < 2) return log_sum_result(lanes, which);
  return std::isfinite(lanes[0]) ? std::log(lanes[1]) - lanes[2] / lanes[1] : std::nan("");
}

Lanes merge_moments(const Lanes& a, double count_a, const Lanes& b, double count_b) {
  const double delta = b[0] - a[0];
  const double share = count_b / (count_a + count_b);
  return {a[0] + delta * share, a[1] + b[1] + delta * delta * count_a * share};
}

// In the order of the enumeration.
constexpr std::array<PartialInfo, kPartialKindCount> kReductions = {{
    {.kind = K::sum,
     .name = "sum",
     .label = "sum",
     .letter = 's',
     .lanes = 1,
     .of = of_itself,
     .merge = merge_sums,
     .of_one = "a",
     .derivative = "g"},
    {.kind = K::max,
     .name = "max",
     .label = "max",
     .letter = 'm',
     .lanes = 1,
     .of = of_itself,
     .merge = merge_maxima,
     .of_one = "a",
     .derivative = "g",
     .picks = true},
    {.kind = K::log_sum_exp,
     .name = "log_sum_exp",
     .label = "lse",
     .letter = 'e',
     .lanes = 2,
     .results = {"max", "log_sum"},
     .both = "log_sum_exp",
     .result = log_sum_result,
     .of = [](double x) -> Lanes { return {x, 1}; },
     .merge = merge_exponentials,
     .value = kBothResults,
     .of_one = "a",
     .derivative = "exp(a - y) * g"},
    {.kind = K::mean_m2,
     .name = "mean_m2",
     .label = "m2",
     .letter = 'c',
     .lanes = 2,
     .results = {"mean", "m2"},
     .needs_count = true,
     .of = of_itself,
     .merge = merge_moments,
     .value = 1,
     .of_one = "a * 0",
     .derivative = "(a - b) * (g * 2)"},
    {.kind = K::abs_max,
     .name = "abs_max",
     .label = "abs_max",
     .letter = 'a',
     .lanes = 1,
     .of = [](double x) -> Lanes { return {std::fabs(x)}; },
     .merge = merge_maxima,
     .of_one = "abs(a)",
     .derivative = "select(less(a, 0), g * -1, select(less(0, a), g, 0))",
     .picks = true},
    {.kind = K::entropy,
     .name = "entropy",
     .label = "entropy",
     .letter = 'h',
     .lanes = 3,
     .results = {"max", "log_sum", "entropy"},
     .both = "log_sum_exp",
     .result = entropy_result,
     .of = [](double x) -> Lanes { return {x, 1, 0}; },
     .merge = merge_entropies,
     .value = 2,
     .second = K::log_sum_exp,
     .of_one = "a * 0",
     // Of a value that weighs nothing b - a may be infinite.
     .derivative = "exp(a - b) * ((min(b - a, 1e30) - y) * g)"},
}};

constexpr bool reductions_in_order() {
  for (int i = 0; i < kPartialKindCount; ++i) {
    if (static_cast<int>(kReductions[i].kind) != i) return false;
  }
  return true;
}
static_assert(reductions_in_order());

}  // namespace

const PartialInfo& info(PartialKind kind) { return kReductions[static_cast<int>(kind)]; }

std::optional<PartialKind> partial_by_name(std::string_view name) {
  for (const PartialInfo& row : kReductions) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

PartialLanes reduce(PartialKind kind, std::span<const double> values) {
  const PartialInfo& row = info(kind);
  PartialLanes lanes = row.of(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    lanes = row.merge(lanes, static_cast<double>(i), row.of(values[i]), 1);
  }
  return lanes;
}

double result_of(PartialKind kind, const PartialLanes& lanes, int result) {
  const PartialInfo& row = info(kind);
  if (result == kBothResults) return result_of(kind, lanes, 0) + result_of(kind, lanes, 1);
  return row.result == nullptr ? lanes[static_cast<size_t>(result)] : row.result(lanes, result);
}

}  // namespace coda
