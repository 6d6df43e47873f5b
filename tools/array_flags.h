// SPDX-License-Identifier: Apache-2.0
// Flags for files of arrays (.npz, .safetensors).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coda/array_file.h"

namespace coda::tools {

// The flag may be repeated.
CLI::Option* add_array_files(CLI::App& command, const std::string& flag,
                             std::vector<std::string>& files, const std::string& help);

// Throws Error for an unreadable file, and for a name that occurs in two files.
Arrays read_all_arrays(const std::vector<std::string>& files);

}  // namespace coda::tools
