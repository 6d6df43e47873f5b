// SPDX-License-Identifier: Apache-2.0
// Flags for files of arrays (.npz, .safetensors).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coda/array_file.h"
#include "coda/program.h"

namespace coda::tools {

// The flag may be repeated.
CLI::Option* add_array_files(CLI::App& command, const std::string& flag,
                             std::vector<std::string>& files, const std::string& help);

// The arrays of all files. An array whose name `is_known` does not accept is not decompressed and
// has no values: messages only name it. Throws Error for an unreadable file, and for a name that
// occurs in two files.
Arrays read_all_arrays(const std::vector<std::string>& files,
                       const std::function<bool(const std::string&)>& is_known);

// The same, for names of the programs' tensors.
Arrays read_all_arrays(const std::vector<std::string>& files, std::span<const Program> programs);

}  // namespace coda::tools
