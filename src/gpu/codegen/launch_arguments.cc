// SPDX-License-Identifier: Apache-2.0
// Adds each field once and generates the enumerators that name the fields.
#include "gpu/codegen/launch_arguments.h"

#include <algorithm>
#include <limits>

#include "coda/error.h"
#include "gpu/codegen/expressions.h"
#include "gpu/codegen/function_text.h"

namespace coda::gpu {
namespace {

std::string enumeration(const char* comment, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = std::string("// ") + comment + "\nenum : u32 {\n";
  for (const std::string& name : names) text += "  " + name + ",\n";
  return text + "};\n";
}

}  // namespace

std::string UniqueNames::make(std::string_view wanted) {
  const std::string base = identifier(wanted);
  std::string name = base;
  for (int i = 2; !taken_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
  return name;
}

std::string LaunchArguments::map(const TensorMapSpec& spec, const std::string& role) {
  const auto found = std::find(maps_.begin(), maps_.end(), spec);
  const size_t index = static_cast<size_t>(found - maps_.begin());
  if (found == maps_.end()) {
    maps_.push_back(spec);
    map_names_.push_back(names_.make("map_" + sizes_.tensor(spec.tensor).name + role));
  }
  return "a.maps[" + map_names_[index] + "]";
}

std::string LaunchArguments::tile_counter() {
  pointers_.push_back(kTileCounter);
  pointer_names_.push_back(names_.make("tile_counter"));
  return "a.pointers[" + pointer_names_.back() + "]";
}

std::string LaunchArguments::pointer(int tensor) {
  const auto found = std::find(pointers_.begin(), pointers_.end(), tensor);
  const size_t index = static_cast<size_t>(found - pointers_.begin());
  if (found == pointers_.end()) {
    pointers_.push_back(tensor);
    pointer_names_.push_back(names_.make("at_" + sizes_.tensor(tensor).name));
  }
  return "a.pointers[" + pointer_names_[index] + "]";
}

std::string LaunchArguments::number(const std::string& name, int64_t value) {
  return number(name, name, value);
}

std::string LaunchArguments::number(const std::string& name, const std::string& words,
                                    int64_t value) {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    throw Error(sizes_.description() + ": " + words + " is " + std::to_string(value) +
                ", beyond what a kernel counts to (4294967295); run it over fewer rows at a time");
  }
  const uint32_t number = static_cast<uint32_t>(value);
  for (const Number& known : numbers_) {
    if (known.wanted == name && known.value == number) return "a.numbers[" + known.name + "]";
  }
  numbers_.push_back({name, names_.make(name), number});
  return "a.numbers[" + numbers_.back().name + "]";
}

std::string LaunchArguments::number_of(const char* what, int tensor, int64_t value) {
  return number(what + sizes_.tensor(tensor).name, what + sizes_.given().tensors[tensor].name,
                value);
}

std::string LaunchArguments::stride(int tensor) {
  return number_of("stride_", tensor, sizes_.stride(tensor));
}

std::string LaunchArguments::row_bytes(int tensor) {
  const auto bytes = static_cast<int64_t>(size_of(sizes_.tensor(tensor).dtype));
  return number_of("row_bytes_of_", tensor, sizes_.stride(tensor) * bytes);
}

std::string LaunchArguments::stored_rows(int tensor) {
  return number_of("rows_of_", tensor, sizes_.stored_rows(tensor));
}

std::string LaunchArguments::stored_columns(int tensor) {
  return number_of("columns_of_", tensor, sizes_.stored_columns(tensor));
}

std::string LaunchArguments::row_start(std::string_view row, int tensor) {
  return filled("row_start($, $)", {row, stride(tensor)});
}

std::string LaunchArguments::stored_type(int tensor) const {
  return element_text(sizes_.tensor(tensor).dtype);
}

std::string LaunchArguments::text() const {
  std::vector<std::string> number_names;
  for (const Number& number : numbers_) number_names.push_back(number.name);
  return enumeration("Descriptors.", map_names_) + enumeration("Addresses.", pointer_names_) +
         enumeration("Sizes, strides (elements between rows), tile orders.", number_names) +
         "using Arguments = KernelArguments<" + std::to_string(maps_.size()) + ", " +
         std::to_string(pointers_.size()) + ", " + std::to_string(numbers_.size()) + ">;\n";
}

void LaunchArguments::fill(KernelLaunch& launch) const {
  launch.maps = maps_;
  launch.pointers = pointers_;
  for (const Number& number : numbers_) launch.numbers.push_back(number.value);
}

}  // namespace coda::gpu
