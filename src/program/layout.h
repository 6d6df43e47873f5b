// SPDX-License-Identifier: Apache-2.0
// The layout of a text that a parser takes, of a program or of a graph.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coda::program {

// Whether an argument of a function, counted from 0, is a size: a product in it has no spaces.
using IsSize = bool (*)(std::string_view function, size_t argument);

// With every space and line break where all texts have them (coda/program_format.h).
std::string laid_out(std::string_view text, IsSize is_size);

}  // namespace coda::program
