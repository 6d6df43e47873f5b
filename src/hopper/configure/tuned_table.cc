// SPDX-License-Identifier: Apache-2.0
#include "hopper/configure/tuned_table.h"

#include <sstream>

namespace coda::hopper {

extern const char* const kTunedTableText;  // tuned_rows_table.cc, which `coda tune --table` writes

const TunedRows& tuned_table() {
  static const TunedRows rows{std::string_view(kTunedTableText)};
  return rows;
}

namespace {

// Words of lines, in lines of at most 100 columns: a source file has no wider ones.
std::string wrapped(const std::string& text) {
  constexpr size_t kColumns = 100;
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > kColumns) {
      const size_t blank = line.rfind(' ', kColumns);
      result += line.substr(0, blank) + "\n";
      line = "  " + line.substr(blank + 1);
    }
    result += line + "\n";
  }
  return result;
}

}  // namespace

std::string tuned_table_source(const TunedRows& rows, const std::string& measured_on) {
  return "// SPDX-License-Identifier: Apache-2.0\n"
         "// Made by `coda tune --table`: it is not edited. tuned_rows.h says what a row is.\n"
         "// " +
         measured_on +
         "\n"
         "namespace coda::hopper {\n\n"
         "extern const char* const kTunedTableText;\n"
         "const char* const kTunedTableText = R\"(\n" +
         wrapped(rows.text()) +
         ")\";\n\n"
         "}  // namespace coda::hopper\n";
}

}  // namespace coda::hopper
