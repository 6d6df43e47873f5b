// SPDX-License-Identifier: Apache-2.0
// Made by `coda tune --table`: it is not edited. tuned_rows.h says what a row is.
// No rows yet.
namespace coda::hopper {

extern const char* const kTunedTableText;
const char* const kTunedTableText = R"(
)";

}  // namespace coda::hopper
