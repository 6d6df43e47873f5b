// SPDX-License-Identifier: Apache-2.0
// The functions that formulas may call, by their names in NumPy or PyTorch. Each has one row with
// the names of its parameters. x.f(...) is f(x, ...).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formula/array_math.h"

namespace coda::formula {

// What an expression is: an array, or what stands in brackets, or None.
struct Value {
  enum class Kind : unsigned char { array, sequence, none } kind = Kind::array;
  Array array = scalar(0);
  std::vector<Value> items{};

  static Value of(Array x) { return {Kind::array, std::move(x), {}}; }
  static Value sequence(std::vector<Value> items) { return {Kind::sequence, {}, std::move(items)}; }
  static Value none() { return {Kind::none, {}, {}}; }
};

// Throws Error that names what the value is for.
const Array& array_of(const Value& value, const std::string& what);

struct Argument {
  std::string name;  // empty: by its place
  Value value;
};

bool is_function(std::string_view name);
std::vector<std::string> function_names();

// Throws Error for arguments that the function does not have or that do not fit it.
Value call(std::string_view function, std::vector<Argument> arguments);

}  // namespace coda::formula
