// SPDX-License-Identifier: Apache-2.0
#include "hopper/codegen/argument_text.h"

#include "hopper/codegen/expressions.h"

namespace coda::hopper {

std::string ArgumentText::stored_type(int tensor) const {
  return element_text(sizes_.tensor(tensor).dtype);
}

std::string ArgumentText::comment(int tensor) const {
  return "  // " + sizes_.tensor(tensor).name + "\n";
}

std::string ArgumentText::name_of(int tensor) {
  const auto [found, is_new] = tensor_names_.try_emplace(tensor);
  if (is_new) found->second = names_.make(sizes_.tensor(tensor).name);
  return found->second;
}

std::string ArgumentText::stride(int tensor) {
  return number("stride_" + name_of(tensor), sizes_.stride(tensor));
}

std::string ArgumentText::row_bytes(int tensor) {
  const auto bytes = static_cast<int64_t>(size_of(sizes_.tensor(tensor).dtype));
  return number("row_bytes_of_" + name_of(tensor), sizes_.stride(tensor) * bytes);
}

std::string ArgumentText::stored_rows(int tensor) {
  return number("rows_of_" + name_of(tensor), sizes_.stored_rows(tensor));
}

std::string ArgumentText::stored_columns(int tensor) {
  return number("columns_of_" + name_of(tensor), sizes_.stored_columns(tensor));
}

std::string ArgumentText::row_start(const std::string& row, int tensor) {
  return "row_start(" + row + ", " + stride(tensor) + ")";
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
