// SPDX-License-Identifier: Apache-2.0
// Programs in files (.coda), whose text docs/program-text.md describes.
#pragma once

#include <filesystem>

#include "coda/api.h"
#include "coda/program.h"

namespace CODA_API coda {

// Parsed and verified. Throws Error naming the file and, for a wrong text, the line.
Program read_program(const std::filesystem::path& file);

}  // namespace CODA_API coda
