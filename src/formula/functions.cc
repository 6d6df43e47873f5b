// SPDX-License-Identifier: Apache-2.0
#include "formula/functions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/nearest_name.h"
#include "base/stored_element.h"
#include "coda/elementwise.h"
#include "coda/error.h"

namespace coda::formula {
namespace {

using Numbers = std::vector<double>;

// The arguments of one call in the order of the row's parameters; empty: left out.
struct Bound {
  std::string function;
  std::vector<std::optional<Value>> values;

  bool has(size_t i) const { return values[i].has_value() && values[i]->kind != Value::Kind::none; }
  const Array& array(size_t i) const {
    return array_of(*values[i], "argument " + std::to_string(i + 1) + " of " + function);
  }
  int64_t whole(size_t i, int64_t otherwise) const {
    return has(i) ? whole_number(array(i), "argument " + std::to_string(i + 1) + " of " + function)
                  : otherwise;
  }
  bool flag(size_t i) const { return whole(i, 0) != 0; }
  // A number, or several in brackets.
  std::vector<int64_t> wholes(size_t i) const {
    std::vector<int64_t> result;
    if (!has(i)) return result;
    const auto add = [&](const Value& value) {
      result.push_back(whole_number(array_of(value, "a size or axis of " + function),
                                    "a size or axis of " + function));
    };
    if (values[i]->kind != Value::Kind::sequence) {
      add(*values[i]);
    } else {
      for (const Value& item : values[i]->items) add(item);
    }
    return result;
  }
  std::vector<Array> arrays(size_t i) const {
    require(has(i) && values[i]->kind == Value::Kind::sequence,
            function + " takes arrays in brackets: " + function + "([a, b], axis=1)");
    std::vector<Array> result;
    for (const Value& item : values[i]->items)
      result.push_back(array_of(item, "an item of " + function));
    return result;
  }
};

// ---- Reductions of one line of numbers.

double sum(const Numbers& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double mean(const Numbers& x) { return sum(x) / static_cast<double>(x.size()); }
// NaN if any is, as NumPy has it.
double largest(const Numbers& x) {
  double result = x.front();
  for (const double value : x) result = value > result || std::isnan(value) ? value : result;
  return result;
}
double smallest(const Numbers& x) {
  double result = x.front();
  for (const double value : x) result = value < result || std::isnan(value) ? value : result;
  return result;
}
double squared_deviations(const Numbers& x) {
  const double middle = mean(x);
  double result = 0;
  for (const double value : x) result += (value - middle) * (value - middle);
  return result;
}
// log(sum(exp(x - max(x)))).
double log_sum_below_largest(const Numbers& x) {
  const double top = largest(x);
  if (!std::isfinite(top)) return 0;
  double result = 0;
  for (const double value : x) result += std::exp(value - top);
  return std::log(result);
}
double logsumexp(const Numbers& x) { return largest(x) + log_sum_below_largest(x); }

template <double (*kReduce)(const Numbers&)>
Value reduction(const Bound& b) {
  return Value::of(reduce(b.array(0), b.wholes(1), b.flag(2), kReduce));
}
// As NumPy, and not as PyTorch, whose default corrects by one.
template <bool kRoot>
Value variance(const Bound& b) {
  const auto correction = static_cast<double>(b.whole(3, 0));
  return Value::of(reduce(b.array(0), b.wholes(1), b.flag(2), [&](const Numbers& x) {
    const double result = squared_deviations(x) / (static_cast<double>(x.size()) - correction);
    return kRoot ? std::sqrt(result) : result;
  }));
}

// exp(x - logsumexp) along an axis, or its logarithm. The largest value is subtracted first,
// because its sum with the logarithm is rounded.
template <bool kLog>
Value softmax(const Bound& b) {
  const Array& x = b.array(0);
  const std::vector<int64_t> axis{b.whole(1, -1)};
  const auto difference = [](double value, double of_line) { return value - of_line; };
  const Array shifted = map(x, reduce(x, axis, true, largest), difference);
  return Value::of(
      map(shifted, reduce(x, axis, true, log_sum_below_largest), [](double value, double of_line) {
        return kLog ? value - of_line : std::exp(value - of_line);
      }));
}

// ---- Elementwise.

template <double (*kFunction)(double)>
Value unary(const Bound& b) {
  return Value::of(map(b.array(0), kFunction));
}
double relu(double x) { return x > 0 || std::isnan(x) ? x : 0; }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double sign(double x) { return std::isnan(x) ? x : (x > 0) - (x < 0); }
double square(double x) { return x * x; }
double reciprocal(double x) { return 1 / x; }
// The library's own meaning of an operation.
template <Elementwise kOperation>
double operation(double x) {
  return info(kOperation).evaluate(x, 0, 0);
}
double stochastic_bf16(double x, double u) {
  return info(Elementwise::stochastic_bf16).evaluate(x, u, 0);
}
template <DType kType>
double rounded(double x) {
  return rounded_to(kType, x);
}

template <double (*kFunction)(double, double)>
Value binary(const Bound& b) {
  return Value::of(map(b.array(0), b.array(1), kFunction));
}
double larger(double a, double b) { return largest({a, b}); }
double smaller(double a, double b) { return smallest({a, b}); }

// As the library has it, of three arrays that broadcast: where(c, a, b), and random(seed, i, j).
template <Elementwise kOperation>
Value ternary(const Bound& b) {
  const std::vector<int64_t> shape =
      broadcast(broadcast(b.array(0).shape, b.array(1).shape), b.array(2).shape);
  const Array first = broadcast_to(b.array(0), shape);
  const Array second = broadcast_to(b.array(1), shape);
  Array result = broadcast_to(b.array(2), shape);
  for (size_t i = 0; i < result.values.size(); ++i) {
    result.values[i] =
        info(kOperation).evaluate(first.values[i], second.values[i], result.values[i]);
  }
  return Value::of(result);
}
Value clip(const Bound& b) {
  Array x = b.array(0);
  if (b.has(1)) x = map(x, b.array(1), larger);
  if (b.has(2)) x = map(x, b.array(2), smaller);
  return Value::of(x);
}

// ---- Shapes.

Value concatenated(const Bound& b) { return Value::of(concatenate(b.arrays(0), b.whole(1, 0))); }
Value stacked(const Bound& b) {
  std::vector<Array> parts = b.arrays(0);
  require(!parts.empty(), "there is nothing to stack");
  Array grown = add_dimension(parts.front(), 0);
  const int axis = axis_of(grown, b.whole(1, 0));
  for (Array& part : parts) {
    require(axis <= dimensions(part), "the arrays of stack have different shapes");
    part = add_dimension(part, axis);
  }
  return Value::of(concatenate(parts, axis));
}
Value split(const Bound& b) {
  const Array& x = b.array(0);
  const int64_t parts = b.whole(1, 2);
  const int axis = axis_of(x, b.whole(2, 0));
  const int64_t size = x.shape[static_cast<size_t>(axis)];
  require(parts > 0 && size % parts == 0, "a size of " + std::to_string(size) +
                                              " cannot be split into " + std::to_string(parts) +
                                              " equal parts");
  std::vector<Value> result;
  for (int64_t part = 0; part < parts; ++part) {
    std::vector<int64_t> indices(static_cast<size_t>(size / parts));
    std::iota(indices.begin(), indices.end(), part * (size / parts));
    result.push_back(Value::of(take(x, axis, indices)));
  }
  return Value::sequence(std::move(result));
}
Value reshaped(const Bound& b) { return Value::of(reshape(b.array(0), b.wholes(1))); }
Value transposed(const Bound& b) {
  const Array& x = b.array(0);
  const std::vector<int64_t> axes = b.wholes(1);
  if (axes.empty()) return Value::of(transpose(x));
  std::vector<int> order;
  if (std::ssize(axes) == 2) {  // PyTorch's: two are exchanged
    order.resize(x.shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[static_cast<size_t>(axis_of(x, axes[0]))],
              order[static_cast<size_t>(axis_of(x, axes[1]))]);
    return Value::of(transpose(x, order));
  }
  for (const int64_t axis : axes) order.push_back(axis_of(x, axis));
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(x.shape.size());
  std::iota(all.begin(), all.end(), 0);
  require(sorted == all, "transpose needs each axis of " + shape_text(x) + " once");
  return Value::of(transpose(x, order));
}
Value repeated(const Bound& b) {
  const Array& x = b.array(0);
  const int axis = axis_of(x, b.whole(2, 0));
  const int64_t times = b.whole(1, 1);
  require(times > 0, "repeat needs a number of times from 1 on");
  count_of({times, std::ssize(x.values)});
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < x.shape[static_cast<size_t>(axis)]; ++i)
    indices.insert(indices.end(), static_cast<size_t>(times), i);
  return Value::of(take(x, axis, indices));
}
Value tiled(const Bound& b) {
  Array x = b.array(0);
  const std::vector<int64_t> times = b.wholes(1);
  while (dimensions(x) < std::ssize(times)) x = add_dimension(x, 0);
  for (size_t i = 0; i < times.size(); ++i) {
    require(times[i] > 0, "tile needs numbers of times from 1 on");
    count_of({times[i], std::ssize(x.values) + 16});  // an Array has fields beside its values
    const int axis = dimensions(x) - static_cast<int>(times.size() - i);
    x = concatenate(std::vector<Array>(static_cast<size_t>(times[i]), x), axis);
  }
  return Value::of(x);
}
Value arange(const Bound& b) {
  const int64_t start = b.has(1) ? b.whole(0, 0) : 0;
  const int64_t stop = b.has(1) ? b.whole(1, 0) : b.whole(0, 0);
  const int64_t step = b.whole(2, 1);
  require(step > 0, "arange goes upwards: its step is at least 1");
  Array result = zeros({std::max<int64_t>(0, (stop - start + step - 1) / step)});
  for (size_t i = 0; i < result.values.size(); ++i)
    result.values[i] = static_cast<double>(start + static_cast<int64_t>(i) * step);
  return Value::of(result);
}
template <int kValue>
Value filled(const Bound& b) {
  Array result = zeros(b.wholes(0));
  for (double& value : result.values) value = kValue;
  return Value::of(result);
}
template <int kValue>
Value filled_like(const Bound& b) {
  return Value::of(map(b.array(0), [](double) { return double{kValue}; }));
}
std::vector<int64_t> indices_of(const Array& x) {
  std::vector<int64_t> indices;
  for (const double index : x.values) indices.push_back(whole_number(scalar(index), "an index"));
  return indices;
}
Value taken(const Bound& b) {
  const Array& x = b.array(0);
  const Array& index = b.array(1);
  const int axis = axis_of(x, b.whole(2, 0));
  require(dimensions(index) <= 1, "take needs a vector of indices, not " + shape_text(index));
  return Value::of(take(x, axis, indices_of(index)));
}
// x[i, index[i]], 0 where there is no such column: the step of programs.
Value column_selected(const Bound& b) {
  const Array& x = b.array(0);
  const std::vector<int64_t> indices = indices_of(b.array(1));
  require(dimensions(x) == 2 && std::ssize(indices) == x.shape[0],
          "select_column needs a matrix and an index for each of its rows");
  Array result = zeros({x.shape[0]});
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= x.shape[1]) continue;
    result.values[i] =
        x.values[i * static_cast<size_t>(x.shape[1]) + static_cast<size_t>(indices[i])];
  }
  return Value::of(result);
}
Value widened(const Bound& b) {
  const Array& x = b.array(0);
  const int64_t axis = b.whole(1, 0);
  const Array grown{std::vector<int64_t>(x.shape.size() + 1, 1), {}};
  return Value::of(add_dimension(x, axis_of(grown, axis)));
}
Value narrowed(const Bound& b) {
  return Value::of(remove_dimension(b.array(0), axis_of(b.array(0), b.whole(1, -1))));
}
Value outer(const Bound& b) {
  const Array column = reshape(b.array(0), {-1, 1});
  return Value::of(
      map(column, reshape(b.array(1), {-1}), [](double x, double y) { return x * y; }));
}
Value product(const Bound& b) { return Value::of(matmul(b.array(0), b.array(1))); }
Value unchanged(const Bound& b) { return Value::of(b.array(0)); }

struct Row {
  std::string_view name;
  std::string_view parameters;  // "x *shape": the last takes all that follow
  size_t needed;                // so many of them
  Value (*call)(const Bound&);
};

constexpr std::string_view kLine = "x axis keepdims";

const Row kRows[] = {
    {"exp", "x", 1, unary<std::exp>},
    {"log", "x", 1, unary<std::log>},
    {"log1p", "x", 1, unary<std::log1p>},
    {"log2", "x", 1, unary<std::log2>},
    {"expm1", "x", 1, unary<std::expm1>},
    {"sqrt", "x", 1, unary<std::sqrt>},
    {"rsqrt", "x", 1, unary<operation<Elementwise::rsqrt>>},
    {"reciprocal", "x", 1, unary<reciprocal>},
    {"square", "x", 1, unary<square>},
    {"abs", "x", 1, unary<std::fabs>},
    {"sign", "x", 1, unary<sign>},
    {"floor", "x", 1, unary<std::floor>},
    {"round", "x", 1, unary<std::nearbyint>},
    {"sin", "x", 1, unary<std::sin>},
    {"cos", "x", 1, unary<std::cos>},
    {"tanh", "x", 1, unary<std::tanh>},
    {"erf", "x", 1, unary<std::erf>},
    {"sigmoid", "x", 1, unary<operation<Elementwise::sigmoid>>},
    {"relu", "x", 1, unary<relu>},
    {"softplus", "x", 1, unary<softplus>},
    {"silu", "x", 1, unary<operation<Elementwise::silu>>},
    {"gelu", "x", 1, unary<operation<Elementwise::gelu>>},
    {"gelu_tanh", "x", 1, unary<operation<Elementwise::gelu_tanh>>},
    {"bf16", "x", 1, unary<rounded<DType::bf16>>},
    {"f16", "x", 1, unary<rounded<DType::f16>>},
    {"f32", "x", 1, unary<rounded<DType::f32>>},
    {"e4m3", "x", 1, unary<rounded<DType::e4m3>>},
    {"e5m2", "x", 1, unary<rounded<DType::e5m2>>},
    {"u8", "x", 1, unary<rounded<DType::u8>>},
    {"maximum", "a b", 2, binary<larger>},
    {"minimum", "a b", 2, binary<smaller>},
    {"power", "a b", 2, binary<std::pow>},
    {"pow", "a b", 2, binary<std::pow>},
    {"where", "condition a b", 3, ternary<Elementwise::select>},
    {"random", "seed i j", 3, ternary<Elementwise::random>},
    {"stochastic_bf16", "x u", 2, binary<stochastic_bf16>},
    {"clip", "x min max", 1, clip},
    {"clamp", "x min max", 1, clip},
    {"sum", kLine, 1, reduction<sum>},
    {"mean", kLine, 1, reduction<mean>},
    {"max", kLine, 1, reduction<largest>},
    {"amax", kLine, 1, reduction<largest>},
    {"min", kLine, 1, reduction<smallest>},
    {"amin", kLine, 1, reduction<smallest>},
    {"logsumexp", kLine, 1, reduction<logsumexp>},
    {"var", "x axis keepdims ddof", 1, variance<false>},
    {"std", "x axis keepdims ddof", 1, variance<true>},
    {"softmax", "x axis", 1, softmax<false>},
    {"log_softmax", "x axis", 1, softmax<true>},
    {"concatenate", "arrays axis", 1, concatenated},
    {"concat", "arrays axis", 1, concatenated},
    {"cat", "arrays axis", 1, concatenated},
    {"stack", "arrays axis", 1, stacked},
    {"split", "x parts axis", 2, split},
    {"chunk", "x parts axis", 2, split},
    {"reshape", "x *shape", 2, reshaped},
    {"view", "x *shape", 2, reshaped},
    {"transpose", "x *axes", 1, transposed},
    {"repeat", "x times axis", 3, repeated},
    {"repeat_interleave", "x times axis", 3, repeated},
    {"tile", "x times", 2, tiled},
    {"arange", "start stop step", 1, arange},
    {"zeros", "*shape", 1, filled<0>},
    {"ones", "*shape", 1, filled<1>},
    {"zeros_like", "x", 1, filled_like<0>},
    {"ones_like", "x", 1, filled_like<1>},
    {"take", "x indices axis", 2, taken},
    {"select_column", "x indices", 2, column_selected},
    {"expand_dims", "x axis", 2, widened},
    {"unsqueeze", "x axis", 2, widened},
    {"squeeze", "x axis", 2, narrowed},
    {"outer", "a b", 2, outer},
    {"matmul", "a b", 2, product},
    {"dot", "a b", 2, product},
    {"float", "x", 1, unchanged},
    {"copy", "x", 1, unchanged},
};

const Row* find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& r) { return r.name == name; });
  return found == std::end(kRows) ? nullptr : found;
}

std::vector<std::string> words_of(std::string_view parameters) {
  std::vector<std::string> words(1);
  for (const char letter : parameters) {
    if (letter == ' ') {
      words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  return words;
}

Bound bind(const Row& row, std::vector<Argument> arguments) {
  std::vector<std::string> names = words_of(row.parameters);
  const bool takes_rest = names.back().front() == '*';
  if (takes_rest) names.back().erase(0, 1);
  Bound bound{std::string(row.name), std::vector<std::optional<Value>>(names.size())};
  size_t place = 0;
  for (Argument& argument : arguments) {
    if (argument.name.empty()) {
      const bool is_rest = takes_rest && place + 1 >= names.size();
      require(is_rest || place < names.size(),
              bound.function + " has at most " + std::to_string(names.size()) + " arguments");
      if (!is_rest) {
        bound.values[place++] = std::move(argument.value);
      } else if (!bound.values.back()) {
        bound.values.back() = std::move(argument.value);  // one in brackets, or the first of many
      } else {
        if (bound.values.back()->kind != Value::Kind::sequence)
          bound.values.back() = Value::sequence({*bound.values.back()});
        bound.values.back()->items.push_back(std::move(argument.value));
      }
      continue;
    }
    // PyTorch's words.
    if (argument.name == "dim") argument.name = "axis";
    if (argument.name == "keepdim") argument.name = "keepdims";
    const auto found = std::find(names.begin(), names.end(), argument.name);
    require(found != names.end(), bound.function + " has no argument '" + argument.name + "'" +
                                      nearest_name(argument.name, names));
    std::optional<Value>& value = bound.values[static_cast<size_t>(found - names.begin())];
    require(!value, bound.function + " is given '" + argument.name + "' twice");
    value = std::move(argument.value);
  }
  for (size_t i = 0; i < row.needed; ++i)
    require(bound.values[i].has_value(), bound.function + " needs " + names[i]);
  return bound;
}

}  // namespace

const Array& array_of(const Value& value, const std::string& what) {
  require(value.kind == Value::Kind::array,
          what + " must be an array or a number, not " +
              (value.kind == Value::Kind::none ? "None" : "several in brackets"));
  return value.array;
}

bool is_function(std::string_view name) { return find(name) != nullptr; }

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

Value call(std::string_view function, std::vector<Argument> arguments) {
  const Row* row = find(function);
  invariant(row != nullptr, "a formula calls a function that is not there");
  return row->call(bind(*row, std::move(arguments)));
}

}  // namespace coda::formula
