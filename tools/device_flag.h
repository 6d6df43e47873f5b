// SPDX-License-Identifier: Apache-2.0
// --device: where a model is trained, evaluated or sampled.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "coda/backend.h"

namespace coda::tools {

inline const std::string kAnyDevice = "auto";  // the GPU where there is one, else the CPU

void add_device_flag(CLI::App& command, std::string& device);

// Throws Error that says what is missing where a GPU is asked for and there is none.
std::unique_ptr<Backend> backend_of(const std::string& device);

}  // namespace coda::tools
