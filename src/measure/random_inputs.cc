// SPDX-License-Identifier: Apache-2.0
#include "measure/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <random>
#include <set>

#include "base/stored_element.h"
#include "coda/plan.h"

namespace coda::measure {
namespace {

constexpr double kLarger = 32;
constexpr double kSmaller = 1.0 / 64;
constexpr double kMagnitudes = 0x1p20;  // larger than any magnitude in a tile of scaled inputs
constexpr int64_t kWhole = 8;
constexpr int64_t kSeeds = 1 << 16;

uint64_t hash_of(std::string_view name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

struct Range {  // a range of whole numbers, both ends included
  int64_t least = -kWhole;
  int64_t most = kWhole;
};

Range range_of(const InputUse& use, const DimValues& sizes, bool inside) {
  Range range;
  if (use.use == Use::seed) range = {0, kSeeds - 1};
  if (use.use == Use::place) {
    bool is_strict = inside;
    int64_t limit = INT64_MAX;
    for (const PlaceLimit& one : use.limits) {
      limit = std::min(limit, one.count.evaluate(sizes));
      is_strict = is_strict || one.is_strict;
    }
    range = {is_strict ? 0 : -1, is_strict ? limit - 1 : limit};
  }
  const bool is_positive = use.use == Use::positive || use.use == Use::moment ||
                           use.use == Use::count || use.use == Use::reciprocal_count;
  if (use.is_divisor || is_positive)
    range.least = std::min(std::max<int64_t>(range.least, 1), range.most);
  return range;
}

// `unit` is in [0, 1).
double number_of(const InputUse& use, double unit, const DimValues& sizes) {
  switch (use.use) {
    case Use::divisor: return unit < 0.5 ? -0.25 - 1.5 * unit : 1.5 * unit - 0.5;
    case Use::positive: return 0.0625 + 0.9375 * unit;
    case Use::moment: return 1 + unit;
    case Use::magnitude: return unit;
    case Use::probability: return 0.05 + 0.9 * unit;
    // At most the count, so that the square of a mean does not exceed the mean of the squares.
    case Use::count: return static_cast<double>(use.of.evaluate(sizes)) / (0.5 + 0.4 * unit);
    case Use::reciprocal_count:
      return (0.5 + 0.4 * unit) / static_cast<double>(use.of.evaluate(sizes));
    default: return 2 * unit - 1;
  }
}

bool has_size(const InputUse& use) {
  return use.use == Use::number || use.use == Use::divisor || use.use == Use::positive;
}

InputUse use_of(const std::map<std::string, InputUse>& uses, const std::string& name) {
  const auto found = uses.find(name);
  return found == uses.end() ? InputUse{} : found->second;
}

}  // namespace

std::vector<double> drawn(const TensorDecl& decl, const InputUse& use, const DimValues& sizes,
                          uint64_t seed, bool inside) {
  std::mt19937_64 random(hash_of(decl.name) ^ (seed * 0x9e3779b97f4a7c15ULL));
  const PhysicalShape shape = physical_shape(decl, sizes);
  std::vector<double> values(static_cast<size_t>(shape.rows * shape.cols));
  const bool is_whole = decl.dtype == DType::i32 || use.use == Use::place || use.use == Use::seed;
  const Range range = range_of(use, sizes, inside);
  for (size_t i = 0; i < values.size(); ++i) {
    if (decl.dtype == DType::u8) {
      values[i] = static_cast<double>(random() >> (use.is_quantity ? 56 : 63));
    } else if (is_whole) {
      const auto count = static_cast<uint64_t>(range.most - range.least + 1);
      values[i] = static_cast<double>(range.least + static_cast<int64_t>(random() % count));
    } else {
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
      // The second lane of a partial holds sums of positive terms, a third one sums of negative
      // terms.
      const size_t lane = i / (values.size() / static_cast<size_t>(decl.lanes));
      values[i] = lane == 0 ? number_of(use, unit, sizes) : lane == 1 ? 1 + unit : -unit;
    }
    values[i] = rounded_to(decl.dtype, values[i]);
  }
  if (use.use == Use::place && !values.empty()) {
    // Few random indices are at the ends of the range, where mistakes are frequent, so the first
    // two and the last two are set.
    const int64_t ends[] = {range.least, range.most, range.least + 1, range.most - 1};
    const size_t at = random() % values.size();
    for (size_t i = 0; i < std::min(std::size(ends), values.size()); ++i)
      values[(at + i) % values.size()] =
          static_cast<double>(std::clamp(ends[i], range.least, range.most));
  }
  return values;
}

TensorValues random_inputs(const Program& program, const DimValues& sizes, uint64_t seed,
                           bool inside) {
  const std::map<std::string, InputUse> uses = uses_of_inputs({&program, 1});
  const std::vector<StepTensor> tensors = step_tensors({program.name, {}, program, {}});
  TensorValues inputs;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const TensorDecl& decl = program.tensors[t];
    if (tensors[t].read)
      inputs[decl.name] = drawn(decl, use_of(uses, decl.name), sizes, seed, inside);
  }
  return inputs;
}

bool is_finite(const TensorValues& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
    return std::all_of(tensor.second.begin(), tensor.second.end(),
                       [](double x) { return std::isfinite(x); });
  });
}

bool make_finite(TensorValues& inputs, const std::map<std::string, InputUse>& uses,
                 const std::map<std::string, TensorDecl>& decls,
                 const std::function<bool(const TensorValues&)>& results_are_finite) {
  if (results_are_finite(inputs)) return false;
  std::vector<std::string> names;
  for (const auto& [name, values] : inputs) {
    if (is_floating(decls.at(name).dtype) && has_size(use_of(uses, name))) names.push_back(name);
  }
  const auto with_positive = [&](const std::string& name) {
    TensorValues changed = inputs;
    for (double& x : changed.at(name)) x = std::abs(x);
    return changed;
  };
  for (const std::string& name : names) {
    TensorValues changed = with_positive(name);
    if (!results_are_finite(changed)) continue;
    inputs = std::move(changed);
    return true;
  }
  for (const std::string& name : names) {
    inputs = with_positive(name);
    if (results_are_finite(inputs)) break;
  }
  return true;
}

std::vector<ScaledInputs> scaled_inputs(const TensorValues& inputs,
                                        const std::map<std::string, InputUse>& uses,
                                        const std::map<std::string, TensorDecl>& decls) {
  std::vector<std::string> names;  // the inputs that are scaled
  for (const auto& [name, values] : inputs) {
    const bool is_scaled = is_floating(decls.at(name).dtype) && has_size(use_of(uses, name));
    if (is_scaled) names.push_back(name);
  }
  std::vector<ScaledInputs> all;
  const auto add = [&](std::string words, double of_magnitudes, double of_moments,
                       const auto& factor) {
    TensorValues values = inputs;
    const auto scale = [&](const std::string& name, double by) {
      for (double& x : values.at(name)) x *= by;
    };
    for (size_t i = 0; i < names.size(); ++i) scale(names[i], factor(i));
    for (const auto& [name, old] : inputs) {
      const Use use = use_of(uses, name).use;
      if (use == Use::magnitude) scale(name, of_magnitudes);
      if (use == Use::moment && is_floating(decls.at(name).dtype)) scale(name, of_moments);
    }
    all.push_back({std::move(words), std::move(values)});
  };
  add("of inputs 32 times as large", kMagnitudes, kLarger * kLarger,
      [](size_t) { return kLarger; });
  add("of inputs a 64th as large", 1 / kMagnitudes, kSmaller * kSmaller,
      [](size_t) { return kSmaller; });
  constexpr size_t kMostBits = 4;
  for (size_t bit = 0; bit < kMostBits && (size_t{1} << bit) < names.size(); ++bit) {
    for (const size_t larger : {size_t{1}, size_t{0}}) {
      const auto is_larger = [&](size_t i) { return (i >> bit & 1) == larger; };
      std::string list;
      for (size_t i = 0; i < names.size(); ++i) {
        if (is_larger(i)) list += (list.empty() ? "" : ", ") + names[i];
      }
      add("of " + list + " 32 times as large, other inputs a 64th", 1, kLarger * kLarger,
          [&](size_t i) { return is_larger(i) ? kLarger : kSmaller; });
    }
  }
  return all;
}

std::vector<ScaledInputs> edge_inputs(const TensorValues& inputs,
                                      const std::map<std::string, InputUse>& uses,
                                      const std::map<std::string, TensorDecl>& decls) {
  constexpr double kTiny = 0x1p-10;
  ScaledInputs zeros{"of inputs of which half are 0", inputs};
  for (auto& [name, values] : zeros.values) {
    const InputUse use = use_of(uses, name);
    if (!is_floating(decls.at(name).dtype) || !has_size(use)) continue;
    if (use.use == Use::divisor || use.is_divisor || values.size() == 1) continue;
    std::mt19937_64 random(hash_of(name));
    for (double& x : values) x *= static_cast<double>(random() >> 63);
  }
  ScaledInputs tiny{zeros.words + ", the rest a 1024th as large", zeros.values};
  for (auto& [name, values] : tiny.values) {
    const InputUse use = use_of(uses, name);
    if (!is_floating(decls.at(name).dtype)) continue;
    const double factor = use.use == Use::moment ? kTiny * kTiny : has_size(use) ? kTiny : 1;
    for (double& x : values) x *= factor;
  }
  return {std::move(zeros), std::move(tiny)};
}

std::vector<ScaledInputs> reaching_inputs(const TensorValues& inputs,
                                          const std::map<std::string, InputUse>& uses,
                                          const std::map<std::string, TensorDecl>& decls,
                                          const std::vector<double>& numbers) {
  constexpr size_t kMost = 2;
  std::set<double, std::greater<>> factors;
  for (const double number : numbers) {
    const double size = std::abs(number);
    if (size > kLarger / 2 && size <= kMagnitudes)
      factors.insert(std::ldexp(1.0, std::ilogb(size) + 2));
  }
  std::vector<ScaledInputs> all;
  for (const double factor : factors) {
    if (all.size() == kMost) break;
    ScaledInputs one{
        "of inputs of which half are " + std::to_string(std::lround(factor)) + " times as large",
        inputs};
    for (auto& [name, values] : one.values) {
      if (decls.at(name).dtype == DType::u8 || !has_size(use_of(uses, name)) || values.size() == 1)
        continue;
      std::mt19937_64 random(hash_of(name));
      for (double& x : values) x *= random() >> 63 ? factor : 1;
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<ScaledInputs> meeting_inputs(const TensorValues& inputs,
                                         const std::map<std::string, InputUse>& uses,
                                         const std::map<std::string, TensorDecl>& decls,
                                         const std::vector<double>& numbers) {
  constexpr size_t kMost = 8;
  constexpr double kLargest = 1 << 30;
  const auto is_whole = [&](const std::string& name) { return decls.at(name).dtype == DType::i32; };
  const auto is_place = [&](const std::string& name) {
    return use_of(uses, name).use == Use::place;
  };
  std::vector<std::string> scalars;
  std::vector<std::string> vectors;  // of whole numbers
  for (const auto& [name, values] : inputs) {
    const InputUse use = use_of(uses, name);
    const bool is_checked = is_whole(name) && is_place(name) &&
                            std::ranges::none_of(use.limits, &PlaceLimit::is_strict);
    if (decls.at(name).dtype == DType::u8 || !(has_size(use) || is_checked)) continue;
    if (values.size() == 1) scalars.push_back(name);
    if (values.size() != 1 && is_whole(name)) vectors.push_back(name);
  }
  std::set<double> met;
  for (const double number : numbers) {
    const bool is_of_vectors =
        !vectors.empty() && number == std::floor(number) && std::abs(number) >= kWhole;
    if (std::abs(number) <= kLargest && (is_of_vectors || !scalars.empty())) met.insert(number);
  }
  if (!scalars.empty()) met.insert(0);
  std::vector<double> chosen(met.begin(), met.end());
  std::ranges::stable_sort(chosen, {}, [](double x) { return std::abs(x); });
  chosen.resize(std::min(chosen.size(), kMost));

  std::vector<ScaledInputs> all;
  for (const double number : chosen) {
    for (int turn = 0; turn < (scalars.empty() ? 1 : 3); ++turn) {
      char text[32];
      std::snprintf(text, sizeof text, "%.6g", number);
      ScaledInputs one{"of inputs with scalars and whole numbers near " + std::string(text),
                       inputs};
      const auto put = [&](const std::string& name, double& x, int away) {
        if (is_whole(name)) {
          if (number == std::floor(number)) x = number + (is_place(name) ? 0 : away);
        } else {
          const double step = number == 0 ? 1.0 / 16 : std::abs(number) / 16;
          x = rounded_to(decls.at(name).dtype, number + step * (away == 0 ? 0.5 : away));
        }
      };
      for (size_t i = 0; i < scalars.size(); ++i)  // not all below or all above
        put(scalars[i], one.values.at(scalars[i]).front(), (turn + static_cast<int>(i)) % 3 - 1);
      for (const std::string& name : vectors) {
        std::mt19937_64 random(hash_of(name));
        for (double& x : one.values.at(name)) {
          const int away = static_cast<int>(random() % 3) - 1;
          if (random() >> 63) put(name, x, away);
        }
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace coda::measure
