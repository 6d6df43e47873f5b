// SPDX-License-Identifier: Apache-2.0
// Names are those of the tensors as identifiers; where two become alike, the later one is numbered.
#include "hopper/argument_text.h"

#include <algorithm>
#include <limits>

#include "coda/error.h"
#include "hopper/expressions.h"
#include "runtime/backend.h"

namespace coda::hopper {

ArgumentText::ArgumentText(const Program& program, const DimValues& sizes,
                           const LowerOptions& options)
    : program_(program), sizes_(sizes), options_(options) {}

std::string ArgumentText::name_of_tensor(int tensor) {
  const auto found = tensor_names_.find(tensor);
  if (found != tensor_names_.end()) return found->second;
  std::string name = identifier(program_.tensors[tensor].name);
  while (names_taken_.contains(name)) name += "_" + std::to_string(tensor);
  names_taken_[name] = tensor;
  return tensor_names_[tensor] = name;
}

std::string ArgumentText::pointer(int tensor) {
  if (std::find(pointers_.begin(), pointers_.end(), tensor) == pointers_.end()) {
    pointers_.push_back(tensor);
  }
  return "a.pointers[Pointer::" + name_of_tensor(tensor) + "]";
}

std::string ArgumentText::number(const std::string& name, int64_t value) {
  if (std::find(number_names_.begin(), number_names_.end(), name) == number_names_.end()) {
    require(value >= 0 && value <= std::numeric_limits<uint32_t>::max(),
            "program '" + program_.name + "': " + name + " is " + std::to_string(value) +
                ", and a kernel's sizes have 32 bits; run it on fewer rows at a time");
    number_names_.push_back(name);
    numbers_.push_back(static_cast<uint32_t>(value));
  }
  return "a.numbers[Number::" + name + "]";
}

std::string ArgumentText::pitch(int tensor) {
  const int64_t dense = physical_shape(program_.tensors[tensor], sizes_).cols;
  const int64_t pitch = options_.row_strides.empty() ? dense : options_.row_strides[tensor];
  return number("pitch_" + name_of_tensor(tensor), pitch);
}

std::string ArgumentText::stored_rows(int tensor) {
  return number("rows_of_" + name_of_tensor(tensor),
                physical_shape(program_.tensors[tensor], sizes_).rows);
}

std::string ArgumentText::stored_columns(int tensor) {
  return number("columns_of_" + name_of_tensor(tensor),
                physical_shape(program_.tensors[tensor], sizes_).cols);
}

std::string ArgumentText::row_start(const std::string& row, int tensor) {
  return "row_start(" + row + ", " + pitch(tensor) + ")";
}

std::string ArgumentText::declarations() const {
  const auto enumeration = [](const std::string& name, const std::vector<std::string>& values) {
    std::string text = "struct " + name + " {\n  enum : u32 {\n";
    for (const std::string& value : values) text += "    " + value + ",\n";
    return text + "  };\n};\n";
  };
  std::vector<std::string> pointers;
  for (int tensor : pointers_) pointers.push_back(tensor_names_.at(tensor));
  return enumeration("Pointer", pointers) + enumeration("Number", number_names_) +
         "using Arguments = KernelArguments<0, " + std::to_string(pointers_.size()) + ", " +
         std::to_string(numbers_.size()) + ">;\n";
}

void ArgumentText::fill(KernelLaunch& launch) const {
  launch.pointers = pointers_;
  launch.numbers = numbers_;
}

std::string program_comment(const Program& program) {
  std::string comment;
  std::string line;
  for (char c : text(program)) {
    if (c != '\n') {
      line += c;
      continue;
    }
    comment += line.empty() ? "//\n" : "// " + line + "\n";
    line.clear();
  }
  return comment;
}

}  // namespace coda::hopper
