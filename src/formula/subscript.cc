// SPDX-License-Identifier: Apache-2.0
#include "formula/subscript.h"

#include <algorithm>

#include "coda/error.h"

namespace coda::formula {
namespace {

std::vector<int64_t> indices_of(const Subscript& subscript, int64_t size) {
  std::vector<int64_t> indices;
  if (subscript.kind == Subscript::Kind::index) {
    for (const double index : subscript.index.values)
      indices.push_back(whole_number(scalar(index), "an index"));
    return indices;
  }
  require(subscript.step > 0, "the step of a slice must be positive");
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp<int64_t>(*at < 0 ? *at + size : *at, 0, size);
  };
  for (int64_t i = place(subscript.start, 0); i < place(subscript.stop, size); i += subscript.step)
    indices.push_back(i);
  return indices;
}

bool is_vector(const Subscript& subscript) {
  return subscript.kind == Subscript::Kind::index && dimensions(subscript.index) > 0;
}

// x[rows, cols] of two vectors.
Array pairs(const Array& x, const Subscript& rows, const Subscript& cols) {
  require(dimensions(x) == 2, "two vectors of indices need a matrix");
  const std::vector<int64_t> i = indices_of(rows, x.shape[0]);
  const std::vector<int64_t> j = indices_of(cols, x.shape[1]);
  require(i.size() == j.size(), "the two vectors of indices differ in length");
  Array result = zeros({std::ssize(i)});
  for (size_t k = 0; k < i.size(); ++k)
    result.values[k] = take(take(x, 0, {i[k]}), 1, {j[k]}).values.front();
  return result;
}

}  // namespace

Array element(const Array& x, const std::vector<Subscript>& subscripts) {
  if (subscripts.size() == 2 && is_vector(subscripts[0]) && is_vector(subscripts[1]))
    return pairs(x, subscripts[0], subscripts[1]);
  int used = 0;
  bool has_ellipsis = false;
  for (const Subscript& s : subscripts) {
    used += s.kind == Subscript::Kind::slice || s.kind == Subscript::Kind::index;
    require(s.kind != Subscript::Kind::ellipsis || !has_ellipsis, "an index has one ... at most");
    has_ellipsis = has_ellipsis || s.kind == Subscript::Kind::ellipsis;
    require(!is_vector(s) || dimensions(s.index) == 1, "indices must be a number or a vector");
  }
  require(used <= dimensions(x),
          "an array " + shape_text(x) + " has no " + std::to_string(used) + " dimensions to index");
  Array result = x;
  int axis = 0;
  for (const Subscript& s : subscripts) {
    if (s.kind == Subscript::Kind::ellipsis) {
      axis += dimensions(x) - used;
    } else if (s.kind == Subscript::Kind::none) {
      result = add_dimension(result, axis++);
    } else {
      result = take(result, axis, indices_of(s, result.shape[static_cast<size_t>(axis)]));
      const bool is_number = s.kind == Subscript::Kind::index && !is_vector(s);
      if (is_number) {
        result = remove_dimension(result, axis);
      } else {
        ++axis;
      }
    }
  }
  return result;
}

}  // namespace coda::formula
