// SPDX-License-Identifier: Apache-2.0
// --device, --target and --attention: where a model runs.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "coda/backend.h"

namespace coda::tools {

// --target: the GPU's kernels (BackendOptions::target).
void add_target(CLI::App& command, std::string& target);

struct DeviceFlags {
  std::string device = "auto";
  std::string target;
  std::string attention = "repeatable";

  void add_to(CLI::App& command);
  // `number`: of the GPU; -1: the first. Throws Error if the machine lacks the requested device.
  std::unique_ptr<Backend> backend(int number = -1) const;
};

}  // namespace coda::tools
