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

// Parses the programs of a text in order. Throws a ProgramError with all mistakes, and for a text
// without a program.
std::vector<Program> parse_programs(std::string_view text, std::string_view file = "text");

// Parse and verify a file; read_program requires a file with exactly one program. Throw Error
// naming the file, or ProgramError for an invalid text.
std::vector<Program> read_programs(const std::filesystem::path& file);
Program read_program(const std::filesystem::path& file);

// The unparsed text of a file. Throws Error naming the file.
std::string read_program_text(const std::filesystem::path& file);

// Replaces the file atomically and creates its folder. Throws Error.
void write_program(const std::filesystem::path& file, const Program& program);
void write_program_text(const std::filesystem::path& file, std::string_view text);

}  // namespace CODA_API coda
