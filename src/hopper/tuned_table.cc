// SPDX-License-Identifier: Apache-2.0
#include "hopper/tuned_table.h"

namespace coda::hopper {

extern const char* const kTunedTableText;  // tuned_rows_table.cc, which `coda tune --table` writes

const TunedRows& tuned_table() {
  static const TunedRows rows{std::string_view(kTunedTableText)};
  return rows;
}

std::string tuned_table_source(const TunedRows& rows, const std::string& measured_on) {
  return "// SPDX-License-Identifier: Apache-2.0\n"
         "// Made by `coda tune --table`: it is not edited. tuned_rows.h says what a row is.\n"
         "// " +
         measured_on +
         "\n"
         "namespace coda::hopper {\n\n"
         "extern const char* const kTunedTableText;\n"
         "const char* const kTunedTableText = R\"(\n" +
         rows.text() +
         ")\";\n\n"
         "}  // namespace coda::hopper\n";
}

}  // namespace coda::hopper
