// SPDX-License-Identifier: Apache-2.0
#include "coda/compare.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/nearest_name.h"
#include "base/relative_error.h"
#include "coda/error.h"
#include "coda/formula.h"
#include "coda/messages.h"
#include "measure/chain.h"
#include "measure/given_inputs.h"
#include "measure/reference_time.h"
#include "measure/rounding_differences.h"

namespace coda {
namespace {

// Both are float64: what is larger is another formula. A constant of seven digits is the same.
constexpr double kFormulaBound = 3e-7;
// Of one element, where the bound is of all: random errors are that much larger now and then.
constexpr double kOfOneElement = 8;
constexpr size_t kExamples = 3;

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

// Two NaNs agree, although nobody may have intended them; ComparedTensor::may_be_nan decides that.
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

// `only_finite`: skip elements whose wanted value is not finite. `may_overflow`: then also skip
// elements whose stored value is not finite. `may_be_nan`: NaN is intended.
struct Terms {
  double bound = 0;
  bool only_finite = false;
  bool may_overflow = false;
  bool may_be_nan = false;
};

ComparedTensor compared(const std::string& name, Array stored, Array wanted, const Terms& terms) {
  const double bound = terms.bound;
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
  if (terms.only_finite) {
    for (size_t i = 0; i < stored.values.size(); ++i) {
      const bool is_compared = std::isfinite(stored.values[i]) || !terms.may_overflow;
      if (is_compared && std::isfinite(wanted.values[i])) continue;
      result.overflowing += std::isfinite(wanted.values[i]) ? 1 : 0;
      stored.values[i] = wanted.values[i] = 0;
    }
  }
  for (size_t i = 0; i < stored.values.size(); ++i)
    result.nan += std::isnan(stored.values[i]) && std::isnan(wanted.values[i]) ? 1 : 0;
  result.may_be_nan = terms.may_be_nan;
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
  if (result.differing == 0 && result.error <= bound) return result;
  if (const double factor = constant_factor(stored.values, wanted.values); factor != 0)
    result.remark = "all of it is " + number_text(factor) + " times what is wanted";
  return result;
}

// What is wanted beside what is stored, where both have a name.
Comparison compared_all(std::span<const Program> programs, const Arrays& stored,
                        const Arrays& wanted, const Terms& terms, const std::string& what) {
  Comparison result;
  std::vector<std::string> names;
  for (const auto& [name, array] : stored) {
    names.push_back(name);
    const auto found = wanted.find(name);
    if (found != wanted.end()) {
      result.tensors.push_back(compared(name, array, found->second, terms));
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
    std::string why;
    const auto say = [&](const std::string& what) { why += (why.empty() ? "" : "; ") + what; };
    const std::string of_all = " of " + std::to_string(tensor.elements) + " elements ";
    if (tensor.differing != 0 || tensor.error > tensor.bound)
      say(std::to_string(tensor.differing) + of_all + "differ");
    if (!tensor.remark.empty()) say(tensor.remark);
    if (tensor.nan != 0) {
      say(std::to_string(tensor.nan) + of_all + "are NaN in both, " +
          (tensor.may_be_nan ? "as declared"
                             : "so nothing was compared: write where NaN is intended, as in "
                               "where(x > 0, log(x), nan), or give inputs with finite results "
                               "(--in and --expect)"));
    }
    lines += (why.empty() ? "" : ": " + why) + "\n";
    for (const std::string& example : tensor.examples) lines += "    " + example + "\n";
  }
  if (!comparison.left_out.empty()) {
    std::string list;
    for (const std::string& name : comparison.left_out) list += (list.empty() ? "" : ", ") + name;
    lines += "  not compared: " + list + "\n";
  }
  return lines;
}

Wanted wanted_by(std::string_view text, std::function<Arrays(const Arrays& known)> of) {
  Wanted result{.of = std::move(of)};
  const auto is_letter = [&](size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_letter(at) || (at != 0 && is_letter(at - 1))) continue;  // not the start of a word
    if (text.substr(at, 3) == "nan" && !is_letter(at + 3)) result.says_nan = true;
    double number = 0;
    if (std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      std::from_chars(text.data() + at, text.data() + text.size(), number);
      const size_t before = text.find_last_not_of(' ', at == 0 ? 0 : at - 1);
      const bool may_be_negative =
          at != 0 && before != std::string_view::npos && text[before] == '-';
      result.numbers.push_back(number);
      if (may_be_negative) result.numbers.push_back(-number);
    }
  }
  return result;
}

Comparison compare_with_formula(std::span<const Program> programs, const DimValues& sizes,
                                std::string_view formula, uint64_t seed, bool scaled) {
  return compare_with_function(
      programs, sizes,
      wanted_by(formula, [&](const Arrays& known) { return evaluate_formula(formula, known); }),
      seed, scaled);
}

namespace {

bool same(const Arrays& a, const Arrays& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape == y.second.shape &&
           std::equal(x.second.values.begin(), x.second.values.end(), y.second.values.begin(),
                      y.second.values.end(), [](double p, double q) {
                        return p == q || (std::isnan(p) && std::isnan(q));
                      });
  });
}

}  // namespace

Comparison compare_with_function(std::span<const Program> programs, const DimValues& sizes,
                                 const Wanted& wanted, uint64_t seed, bool scaled) {
  measure::require_chain(programs);
  constexpr double kEvaluations = 40;  // evaluations that draw the inputs and compare all scales
  measure::require_short(programs, sizes, scaled ? kEvaluations : 2);
  measure::ChainInputs inputs = measure::chain_inputs(programs, sizes, seed);
  const auto wanted_of = [&](const program::TensorValues& values) {
    Arrays known = measure::as_arrays(programs, sizes, values);
    for (const auto& [symbol, size] : sizes)
      known.try_emplace(symbol, Array{{}, {static_cast<double>(size)}});
    return wanted.of(known);
  };
  Comparison result;
  // If the formula does not read a count, the count gets the exact value that follows from the
  // sizes.
  for (const auto& [name, use] : inputs.uses) {
    const bool is_count =
        use.use == measure::Use::count || use.use == measure::Use::reciprocal_count;
    if (!is_count) continue;
    const auto of = static_cast<double>(use.of.evaluate(sizes));
    program::TensorValues exact = inputs.values;
    exact[name] = {use.use == measure::Use::count ? of : 1 / of};
    if (!same(wanted_of(inputs.values), wanted_of(exact))) continue;
    inputs.values = std::move(exact);
    result.notes.push_back("the formula does not read " + name + ": it is " +
                           (use.use == measure::Use::count ? "" : "1 / ") + use.of.text() +
                           " here, which a program has as size(" + use.of.text() + ")");
  }
  const auto both_at = [&](const program::TensorValues& values) {
    return measure::StoredAndWanted{
        measure::as_arrays(programs, sizes, measure::evaluate_chain(programs, sizes, values)),
        wanted_of(values)};
  };
  const auto is_changed = [&](const std::string& name) {
    const auto found = inputs.decls.find(name);
    return found != inputs.decls.end() && is_floating(found->second.dtype) &&
           inputs.uses[name].use < measure::Use::seed;
  };
  const auto compare = [&](const program::TensorValues& values, const Terms& terms) {
    measure::StoredAndWanted both = both_at(values);
    const auto compared_now = [&] {
      return compared_all(programs, both.stored, both.wanted, terms, "the formula");
    };
    Comparison all = compared_now();
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      const bool was_right = result.tensors.empty() || result.tensors[i].is_right();
      if (all.tensors[i].is_right() || !was_right) continue;
      measure::remove_rounding(both, values, is_changed, both_at);
      return compared_now();
    }
    return all;
  };
  Terms terms{.bound = kFormulaBound, .may_be_nan = wanted.says_nan};
  Comparison usual = compare(inputs.values, terms);
  result.tensors = std::move(usual.tensors);
  result.left_out = std::move(usual.left_out);
  if (!scaled) return result;
  terms.only_finite = true;
  std::vector<measure::ScaledInputs> others =
      measure::scaled_inputs(inputs.values, inputs.uses, inputs.decls);
  std::vector<double> numbers = measure::numbers_of(programs);
  numbers.insert(numbers.end(), wanted.numbers.begin(), wanted.numbers.end());
  for (measure::ScaledInputs& one :
       measure::reaching_inputs(inputs.values, inputs.uses, inputs.decls, numbers))
    others.push_back(std::move(one));
  std::set<std::string> overflowing;
  const auto compare_too = [&](const measure::ScaledInputs& other) {
    const Comparison of_other = compare(other.values, terms);
    for (size_t i = 0; i < of_other.tensors.size(); ++i) {
      const ComparedTensor& tensor = of_other.tensors[i];
      if (tensor.overflowing > 0 && overflowing.insert(tensor.name).second)
        result.notes.push_back(other.words + " " + std::to_string(tensor.overflowing) + " of " +
                               std::to_string(tensor.elements) + " elements of " + tensor.name +
                               " are not finite, where the formula's are");
      if (tensor.is_right() || !result.tensors[i].is_right()) continue;
      result.tensors[i] = tensor;
      result.tensors[i].remark = other.words + (tensor.remark.empty() ? "" : ", " + tensor.remark);
    }
  };
  // These inputs are not large, so a result that is not finite is an error and not an overflow.
  for (const measure::ScaledInputs& other :
       measure::edge_inputs(inputs.values, inputs.uses, inputs.decls))
    compare_too(other);
  terms.may_overflow = true;
  for (const measure::ScaledInputs& other : others) compare_too(other);
  for (const measure::ScaledInputs& other :
       measure::meeting_inputs(inputs.values, inputs.uses, inputs.decls, numbers)) {
    try {
      compare_too(other);
    } catch (const Error&) {  // the formula reads an array at such an index
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
  Comparison result = compared_all(programs, stored, results, {.bound = bound, .may_be_nan = true},
                                   "the file of results");
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
