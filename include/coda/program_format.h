// SPDX-License-Identifier: Apache-2.0
// The one layout of program text: what a person wrote, with every space and line break where all
// programs have them.
#pragma once

#include <string>
#include <string_view>

#include "coda/api.h"

namespace CODA_API coda {

// The same program, statement by statement, with its comments. A statement stands on a line of its
// own, two spaces in; one of more than 100 columns is broken behind commas and operators. A comment
// inside of a statement goes above it; of blank lines one stays. The layout of a layout is itself.
// Throws ProgramError for a text that is no program; `file` is its name there.
std::string format_program(std::string_view text, std::string_view file = "text");

}  // namespace CODA_API coda
