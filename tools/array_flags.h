// SPDX-License-Identifier: Apache-2.0
// Flags that name files of arrays (.npz, .safetensors).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coda/array_file.h"

namespace coda::tools {

// May be given several times.
CLI::Option* add_array_files(CLI::App& command, const std::string& flag,
                             std::vector<std::string>& files, const std::string& help);

// Throws Error for a file that cannot be read and for a name that two files have.
Arrays read_all_arrays(const std::vector<std::string>& files);

}  // namespace coda::tools
