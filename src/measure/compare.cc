// SPDX-License-Identifier: Apache-2.0
#include "coda/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/nearest_name.h"
#include "base/relative_error.h"
#include "coda/error.h"
#include "coda/formula.h"
#include "coda/messages.h"
#include "measure/chain.h"
#include "measure/given_inputs.h"
#include "measure/reference_time.h"

namespace coda {
namespace {

// Both are float64: what is larger is another formula. A constant of seven digits is the same.
constexpr double kFormulaBound = 3e-7;
// Of one element, where the bound is of all: random errors are that much larger now and then.
constexpr double kOfOneElement = 8;
constexpr size_t kExamples = 3;

// Larger inputs meet clamps, smaller ones meet what is added to a mean square.
constexpr std::pair<double, const char*> kOtherScales[] = {{32, "of inputs 32 times as large"},
                                                           {1.0 / 64, "of inputs a 64th as large"}};

program::TensorValues scaled(std::span<const Program> programs, program::TensorValues values,
                             double scale) {
  for (const auto& [name, decl] : measure::tensors_of(programs).inputs) {
    if (!is_floating(decl.dtype)) continue;
    for (double& x : values.at(name)) x *= scale;
  }
  return values;
}

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

std::string place_text(size_t element, const std::vector<int64_t>& shape) {
  std::string text;
  auto rest = static_cast<int64_t>(element);
  for (size_t axis = shape.size(); axis-- > 0;) {
    text = std::to_string(rest % shape[axis]) + (text.empty() ? "" : ", ") + text;
    rest /= shape[axis];
  }
  return "[" + text + "]";
}

std::string number_text(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", x);
  return buffer;
}

bool agree(double a, double b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= allowed;
}

// The factor between both, if it is one; 0 otherwise.
double constant_factor(const std::vector<double>& stored, const std::vector<double>& wanted) {
  double of_both = 0;
  double of_wanted = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    of_both += stored[i] * wanted[i];
    of_wanted += wanted[i] * wanted[i];
  }
  const double factor = of_both / of_wanted;
  if (!std::isfinite(factor) || factor == 0) return 0;
  std::vector<double> scaled = wanted;
  for (double& x : scaled) x *= factor;
  return relative_error(stored, scaled) < 1e-9 ? factor : 0;
}

ComparedTensor compared(const std::string& name, const Array& stored, const Array& wanted,
                        double bound) {
  ComparedTensor result{.name = name,
                        .shape = shape_text(stored),
                        .bound = bound,
                        .elements = std::ssize(stored.values)};
  if (without_ones(stored.shape) != without_ones(wanted.shape)) {
    result.differing = result.elements;
    result.error = HUGE_VAL;
    result.remark = "the shape that is wanted is " + shape_text(wanted);
    return result;
  }
  result.error = relative_error(stored.values, wanted.values);
  double squares = 0;
  for (const double x : wanted.values) squares += std::isfinite(x) ? x * x : 0;
  const double usual = std::sqrt(squares / static_cast<double>(wanted.values.size()));
  for (size_t i = 0; i < stored.values.size(); ++i) {
    const double a = stored.values[i];
    const double b = wanted.values[i];
    const double size = std::isfinite(b) ? std::max(std::abs(b), usual) : 0;
    if (agree(a, b, kOfOneElement * bound * size)) continue;
    if (result.examples.size() < kExamples)
      result.examples.push_back(place_text(i, stored.shape) + ": " + number_text(a) + ", wanted " +
                                number_text(b));
    ++result.differing;
  }
  if (result.is_right()) return result;
  if (const double factor = constant_factor(stored.values, wanted.values); factor != 0)
    result.remark = "all of it is " + number_text(factor) + " times what is wanted";
  return result;
}

// What is wanted beside what is stored, where both have a name.
Comparison compared_all(std::span<const Program> programs, const Arrays& stored,
                        const Arrays& wanted, double bound, const std::string& what) {
  Comparison result;
  std::vector<std::string> names;
  for (const auto& [name, array] : stored) {
    names.push_back(name);
    const auto found = wanted.find(name);
    if (found != wanted.end()) {
      result.tensors.push_back(compared(name, array, found->second, bound));
    } else if (measure::tensors_of(programs).stored.contains(name)) {
      result.left_out.push_back(name);
    }
  }
  // A result of a partial that is compared says all of the partial.
  std::erase_if(result.left_out, [&](const std::string& name) {
    return std::any_of(result.tensors.begin(), result.tensors.end(),
                       [&](const auto& t) { return t.name.starts_with(name + "_"); }) &&
           measure::tensors_of(programs).stored.at(name).lanes > 1;
  });
  if (!result.tensors.empty()) return result;
  std::string given;
  for (const auto& [name, array] : wanted) given += (given.empty() ? "" : ", ") + name;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  throw Error(what + " has " + (given.empty() ? "nothing" : given) +
              ", none of which the programs store; they store " + all +
              (given.empty() ? "" : nearest_name(wanted.begin()->first, names)));
}

}  // namespace

bool Comparison::is_right() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const ComparedTensor& tensor) { return tensor.is_right(); });
}

std::string text(const Comparison& comparison) {
  std::string lines;
  for (const std::string& note : comparison.notes) lines += "  " + note + "\n";
  for (const ComparedTensor& tensor : comparison.tensors) {
    char line[256];
    std::snprintf(line, sizeof line, "  %-20.80s %-24.80s error %.2e, bound %.2e  %s",
                  tensor.name.c_str(), tensor.shape.c_str(), tensor.error, tensor.bound,
                  tensor.is_right() ? "ok" : "WRONG");
    lines += line;
    if (!tensor.is_right())
      lines += ": " + std::to_string(tensor.differing) + " of " + std::to_string(tensor.elements) +
               " elements differ" + (tensor.remark.empty() ? "" : "; " + tensor.remark);
    lines += "\n";
    for (const std::string& example : tensor.examples) lines += "    " + example + "\n";
  }
  if (!comparison.left_out.empty()) {
    std::string list;
    for (const std::string& name : comparison.left_out) list += (list.empty() ? "" : ", ") + name;
    lines += "  not compared: " + list + "\n";
  }
  return lines;
}

Comparison compare_with_formula(std::span<const Program> programs, const DimValues& sizes,
                                std::string_view formula, uint64_t seed) {
  return compare_with_function(
      programs, sizes, [&](const Arrays& known) { return evaluate_formula(formula, known); }, seed);
}

Comparison compare_with_function(std::span<const Program> programs, const DimValues& sizes,
                                 const Wanted& wanted, uint64_t seed) {
  measure::require_chain(programs);
  constexpr double kEvaluations =
      7;  // for inputs, and of three scales, where the formula is another
  measure::require_short(programs, sizes, kEvaluations);
  const program::TensorValues inputs = measure::chain_inputs(programs, sizes, seed);
  const auto compare = [&](double scale) {
    const program::TensorValues own = scaled(programs, inputs, scale);
    Arrays known = measure::as_arrays(programs, sizes, own);
    for (const auto& [symbol, size] : sizes)
      known.try_emplace(symbol, Array{{}, {static_cast<double>(size)}});
    const Arrays stored =
        measure::as_arrays(programs, sizes, measure::evaluate_chain(programs, sizes, own));
    return compared_all(programs, stored, wanted(known), kFormulaBound, "the formula");
  };
  Comparison result = compare(1);
  for (const auto& [scale, words] : kOtherScales) {
    const Comparison other = compare(scale);
    for (size_t i = 0; i < other.tensors.size(); ++i) {
      const ComparedTensor& tensor = other.tensors[i];
      // What overflows may do so in one of both only.
      if (tensor.is_right() || !std::isfinite(tensor.error) || !result.tensors[i].is_right())
        continue;
      result.tensors[i] = tensor;
      result.tensors[i].remark =
          std::string(words) + (tensor.remark.empty() ? "" : ", " + tensor.remark);
    }
  }
  return result;
}

Comparison compare_with_results(std::span<const Program> programs, const DimValues& sizes,
                                const Arrays& inputs, const Arrays& results, double bound) {
  measure::require_chain(programs);
  measure::require_short(programs, sizes, 1);
  measure::GivenInputs given = measure::given_inputs(programs, sizes, inputs);
  const Arrays stored =
      measure::as_arrays(programs, sizes, measure::evaluate_chain(programs, sizes, given.values));
  Comparison result = compared_all(programs, stored, results, bound, "the file of results");
  for (const auto& [name, array] : results) {
    std::vector<std::string> names;
    for (const auto& [stored_name, of_it] : stored) names.push_back(stored_name);
    require(stored.contains(name), "the file of results has " + in_quotes(name) +
                                       ", which no program stores" + nearest_name(name, names) +
                                       " (leave it out)");
  }
  result.notes = std::move(given.notes);
  return result;
}

}  // namespace coda
