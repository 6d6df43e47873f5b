// SPDX-License-Identifier: Apache-2.0
// Lays out the text of a program or graph.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coda::program {

// Whether an argument of a function (counted from 0) is a size; products in sizes have no spaces.
using IsSize = bool (*)(std::string_view function, size_t argument);

// The text with standard spaces and line breaks (coda/program_format.h).
std::string formatted(std::string_view text, IsSize is_size);

}  // namespace coda::program
