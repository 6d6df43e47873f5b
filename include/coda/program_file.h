// SPDX-License-Identifier: Apache-2.0
// Programs in files (.coda), one or several behind one another, whose text docs/program-text.md
// describes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// The programs of a text, in their order, at least one. Throws a ProgramError with all mistakes.
std::vector<Program> parse_programs(std::string_view text, std::string_view file = "text");

// Parsed and verified. Throws Error naming the file; for a wrong text a ProgramError. read_program:
// of a file that has one.
std::vector<Program> read_programs(const std::filesystem::path& file);
Program read_program(const std::filesystem::path& file);

// As it is written, whether it is right or not. Throws Error naming the file.
std::string read_program_text(const std::filesystem::path& file);

// The file is replaced as a whole or not at all; its folder is made. Throws Error.
void write_program(const std::filesystem::path& file, const Program& program);
void write_program_text(const std::filesystem::path& file, std::string_view text);

}  // namespace CODA_API coda
