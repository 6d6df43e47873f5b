// SPDX-License-Identifier: Apache-2.0
#include "formula/array_math.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "coda/error.h"

namespace coda::formula {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 26;

std::string text(const std::vector<int64_t>& shape) { return shape_text(Array{shape, {}}); }

// How far apart neighbours along each axis lie; 0 along what is repeated to make `shape`.
std::vector<int64_t> strides(const std::vector<int64_t>& of, const std::vector<int64_t>& shape) {
  std::vector<int64_t> result(shape.size(), 0);
  int64_t stride = 1;
  for (size_t i = 0; i < of.size(); ++i) {
    const size_t from = of.size() - 1 - i;
    if (of[from] != 1) result[shape.size() - 1 - i] = stride;
    stride *= of[from];
  }
  return result;
}

// Calls visit(the place in memory of each element), the elements in row-major order of `shape`.
template <typename Visit>
void walk(const std::vector<int64_t>& shape, const std::vector<int64_t>& steps, Visit visit) {
  const int64_t count = count_of(shape);
  std::vector<int64_t> at(shape.size(), 0);
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    visit(place);
    for (size_t axis = shape.size(); axis-- > 0;) {
      place += steps[axis];
      if (++at[axis] < shape[axis]) break;
      place -= steps[axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

}  // namespace

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    require(size >= 0, "a size is negative: " + text(shape));
    require(size == 0 || count <= kMostElements / size,
            "an array " + text(shape) + " is too large: evaluate the formula at smaller sizes");
    count *= size;
  }
  return count;
}

int dimensions(const Array& x) { return static_cast<int>(x.shape.size()); }
Array scalar(double value) { return {{}, {value}}; }

Array zeros(std::vector<int64_t> shape) {
  const auto count = static_cast<size_t>(count_of(shape));
  return {std::move(shape), std::vector<double>(count)};
}

int axis_of(const Array& x, int64_t axis) {
  const int64_t from_start = axis < 0 ? axis + dimensions(x) : axis;
  require(from_start >= 0 && from_start < dimensions(x),
          "there is no axis " + std::to_string(axis) + " in the shape " + shape_text(x));
  return static_cast<int>(from_start);
}

std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    require(of_a == of_b || of_a == 1 || of_b == 1,
            "shapes " + text(a) + " and " + text(b) +
                " do not go together; a vector of one number a row is written r[:, None]");
    shape[shape.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

Array broadcast_to(const Array& x, const std::vector<int64_t>& shape) {
  require(broadcast(x.shape, shape) == shape,
          "shape " + shape_text(x) + " cannot be repeated to " + text(shape));
  Array result = zeros(shape);
  auto out = result.values.begin();
  walk(shape, strides(x.shape, shape), [&](int64_t place) { *out++ = x.values[place]; });
  return result;
}

Array map(const Array& x, const std::function<double(double)>& function) {
  Array result = x;
  for (double& value : result.values) value = function(value);
  return result;
}

Array map(const Array& a, const Array& b, const std::function<double(double, double)>& function) {
  const std::vector<int64_t> shape = broadcast(a.shape, b.shape);
  Array result = broadcast_to(a, shape);
  auto out = result.values.begin();
  walk(shape, strides(b.shape, shape), [&](int64_t place) {
    *out = function(*out, b.values[place]);
    ++out;
  });
  return result;
}

Array matmul(const Array& a, const Array& b) {
  require(dimensions(a) > 0 && dimensions(b) > 0, "@ multiplies matrices and vectors, not " +
                                                      shape_text(a) + " by " + shape_text(b) +
                                                      "; numbers are multiplied by *");
  if (dimensions(a) == 1) return remove_dimension(matmul(add_dimension(a, 0), b), 0);
  if (dimensions(b) == 1) {
    const Array column = matmul(a, add_dimension(b, 1));
    return remove_dimension(column, dimensions(column) - 1);
  }
  require(dimensions(b) == 2 && a.shape.back() == b.shape.front(),
          "@ cannot multiply " + shape_text(a) + " by " + shape_text(b) +
              ": the last size of the first must be the first size of the second (.T transposes)");
  std::vector<int64_t> shape = a.shape;
  shape.back() = b.shape[1];
  Array result = zeros(shape);
  const int64_t inner = b.shape[0];
  const int64_t cols = b.shape[1];
  if (result.values.empty() || inner == 0) return result;
  const int64_t rows = static_cast<int64_t>(a.values.size()) / inner;
  for (int64_t i = 0; i < rows; ++i) {
    double* out = &result.values[static_cast<size_t>(i * cols)];
    for (int64_t k = 0; k < inner; ++k) {
      const double factor = a.values[static_cast<size_t>(i * inner + k)];
      const double* of_b = &b.values[static_cast<size_t>(k * cols)];
      for (int64_t j = 0; j < cols; ++j) out[j] += factor * of_b[j];
    }
  }
  return result;
}

Array reduce(const Array& x, const std::vector<int64_t>& axes, bool keep,
             const std::function<double(const std::vector<double>&)>& function) {
  std::vector<bool> goes(x.shape.size(), axes.empty());
  for (const int64_t axis : axes) goes[static_cast<size_t>(axis_of(x, axis))] = true;
  // What stays first, what goes last: then each line lies together.
  std::vector<int> order;
  std::vector<int64_t> kept;
  std::vector<int64_t> with_ones;
  for (int axis = 0; axis < dimensions(x); ++axis) {
    with_ones.push_back(goes[axis] ? 1 : x.shape[axis]);
    if (goes[axis]) continue;
    order.push_back(axis);
    kept.push_back(x.shape[axis]);
  }
  for (int axis = 0; axis < dimensions(x); ++axis) {
    if (goes[axis]) order.push_back(axis);
  }
  const Array lines = transpose(x, order);
  Array result = zeros(kept);
  const size_t length = result.values.empty() ? 0 : lines.values.size() / result.values.size();
  require(length > 0, "there is nothing to reduce in the shape " + shape_text(x));
  for (size_t i = 0; i < result.values.size(); ++i) {
    const auto start = lines.values.begin() + static_cast<std::ptrdiff_t>(i * length);
    result.values[i] = function({start, start + static_cast<std::ptrdiff_t>(length)});
  }
  if (keep) result.shape = with_ones;
  return result;
}

Array reshape(const Array& x, std::vector<int64_t> shape) {
  const auto left_out = std::find(shape.begin(), shape.end(), -1);
  const auto count = static_cast<int64_t>(x.values.size());
  if (left_out != shape.end()) {
    *left_out = 1;
    const int64_t others = count_of(shape);
    *left_out = others == 0 ? 0 : count / others;
  }
  require(count_of(shape) == count,
          "an array " + shape_text(x) + " cannot have the shape " + text(shape));
  return {std::move(shape), x.values};
}

Array transpose(const Array& x, const std::vector<int>& order) {
  const std::vector<int64_t> from = strides(x.shape, x.shape);
  std::vector<int64_t> shape;
  std::vector<int64_t> steps;
  for (const int axis : order) {
    shape.push_back(x.shape[static_cast<size_t>(axis)]);
    steps.push_back(from[static_cast<size_t>(axis)]);
  }
  Array result = zeros(shape);
  auto out = result.values.begin();
  walk(shape, steps, [&](int64_t place) { *out++ = x.values[place]; });
  return result;
}

Array transpose(const Array& x) {
  std::vector<int> order(x.shape.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return transpose(x, order);
}

Array take(const Array& x, int axis, const std::vector<int64_t>& indices) {
  const int64_t size = x.shape[static_cast<size_t>(axis)];
  int64_t outer = 1;
  int64_t inner = 1;
  for (int i = 0; i < dimensions(x); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : x.shape[i];
  std::vector<int64_t> shape = x.shape;
  shape[static_cast<size_t>(axis)] = std::ssize(indices);
  Array result = zeros(shape);
  auto out = result.values.begin();
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t index : indices) {
      require(
          index >= -size && index < size,
          "index " + std::to_string(index) + " is outside of a size of " + std::to_string(size));
      if (index < 0) index += size;
      const auto start = x.values.begin() + (i * size + index) * inner;
      out = std::copy(start, start + inner, out);
    }
  }
  return result;
}

Array concatenate(const std::vector<Array>& parts, int64_t axis) {
  require(!parts.empty(), "there is nothing to concatenate");
  const Array& first = parts.front();
  const int at = axis_of(first, axis);
  std::vector<int64_t> shape = first.shape;
  shape[static_cast<size_t>(at)] = 0;
  for (const Array& part : parts) {
    std::vector<int64_t> others = part.shape;
    if (dimensions(part) == dimensions(first)) others[at] = first.shape[at];
    require(others == first.shape, "arrays " + shape_text(first) + " and " + shape_text(part) +
                                       " cannot be concatenated along axis " +
                                       std::to_string(axis));
    shape[at] += part.shape[at];
  }
  Array result = zeros(shape);
  int64_t outer = 1;
  for (int i = 0; i < at; ++i) outer *= shape[i];
  auto out = result.values.begin();
  for (int64_t i = 0; i < outer; ++i) {
    for (const Array& part : parts) {
      const int64_t length = std::ssize(part.values) / outer;
      const auto start = part.values.begin() + i * length;
      out = std::copy(start, start + length, out);
    }
  }
  return result;
}

Array add_dimension(const Array& x, int axis) {
  Array result = x;
  result.shape.insert(result.shape.begin() + axis, 1);
  return result;
}

Array remove_dimension(const Array& x, int axis) {
  Array result = x;
  require(x.shape[static_cast<size_t>(axis)] == 1,
          "axis " + std::to_string(axis) + " of " + shape_text(x) + " is not 1");
  result.shape.erase(result.shape.begin() + axis);
  return result;
}

int64_t whole_number(const Array& x, const std::string& what) {
  require(x.values.size() == 1 && x.values.front() == std::floor(x.values.front()) &&
              std::abs(x.values.front()) < 9e15,
          what + " must be one whole number" +
              (x.values.size() == 1 ? "" : ", not an array " + shape_text(x)));
  return static_cast<int64_t>(x.values.front());
}

}  // namespace coda::formula
