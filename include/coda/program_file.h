// SPDX-License-Identifier: Apache-2.0
// Programs in .coda files. A file has one program or several, one after another;
// docs/program-text.md describes the language.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// Parses the programs of a text in order; there must be at least one. Throws a ProgramError that
// lists all mistakes.
std::vector<Program> parse_programs(std::string_view text, std::string_view file = "text");

// Parse and verify a file; read_program requires a file with exactly one program. Throw Error
// naming the file, or ProgramError for an invalid text.
std::vector<Program> read_programs(const std::filesystem::path& file);
Program read_program(const std::filesystem::path& file);

// As it is written, whether it is right or not. Throws Error naming the file.
std::string read_program_text(const std::filesystem::path& file);

// The file is replaced as a whole or not at all; its folder is made. Throws Error.
void write_program(const std::filesystem::path& file, const Program& program);
void write_program_text(const std::filesystem::path& file, std::string_view text);

}  // namespace CODA_API coda
