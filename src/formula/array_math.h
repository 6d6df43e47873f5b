// SPDX-License-Identifier: Apache-2.0
// NumPy's operations on float64 arrays, one element after another. The code is simple instead of
// fast, because formulas are evaluated only at small test sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coda/array.h"

namespace coda::formula {

// Elements of an array. Throws Error for more than 2^26, which no check needs.
int64_t count_of(const std::vector<int64_t>& shape);
int dimensions(const Array& x);
Array scalar(double value);
Array zeros(std::vector<int64_t> shape);

// The place of an axis that may count from the end. Throws Error.
int axis_of(const Array& x, int64_t axis);

// Shapes are aligned at their last dimension; a size of 1 goes with any. Throws Error.
std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b);
Array broadcast_to(const Array& x, const std::vector<int64_t>& shape);
Array map(const Array& x, const std::function<double(double)>& function);
Array map(const Array& a, const Array& b, const std::function<double(double, double)>& function);

// [.., M, K] @ [K, N]; of a vector the dimension of 1 is added and removed, as NumPy does.
Array matmul(const Array& a, const Array& b);

// Each line along the axes becomes one number; no axes: all of the array.
Array reduce(const Array& x, const std::vector<int64_t>& axes, bool keep,
             const std::function<double(const std::vector<double>&)>& function);

Array reshape(const Array& x, std::vector<int64_t> shape);  // one size may be -1
Array transpose(const Array& x, const std::vector<int>& order);
Array transpose(const Array& x);  // all dimensions turned round
Array take(const Array& x, int axis, const std::vector<int64_t>& indices);
Array concatenate(const std::vector<Array>& parts, int64_t axis);
Array add_dimension(const Array& x, int axis);
Array remove_dimension(const Array& x, int axis);  // of size 1

// The whole number that an array of one element holds. Throws Error that names `what`.
int64_t whole_number(const Array& x, const std::string& what);

}  // namespace coda::formula
