// SPDX-License-Identifier: Apache-2.0
// Programs in files (.coda), whose text docs/program-text.md describes.
#pragma once

#include <filesystem>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// Parsed and verified. Throws Error naming the file; for a wrong text a ProgramError.
Program read_program(const std::filesystem::path& file);

// The file is replaced as a whole or not at all; its folder is made. Throws Error.
void write_program(const std::filesystem::path& file, const Program& program);

}  // namespace CODA_API coda
