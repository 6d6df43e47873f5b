// SPDX-License-Identifier: Apache-2.0
// Formats program text in the one standard layout.
#pragma once

#include <string>
#include <string_view>

#include "coda/api.h"

namespace CODA_API coda {

// The same program, statement by statement, with its comments. Each statement is on its own line,
// indented by two spaces; one of more than 100 columns is broken after commas and operators. A
// comment inside a statement moves above it. Several blank lines become one. Formatting is
// idempotent. Throws ProgramError for an invalid text; `file` is its name in messages.
std::string format_program(std::string_view text, std::string_view file = "text");

}  // namespace CODA_API coda
