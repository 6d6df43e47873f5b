// SPDX-License-Identifier: Apache-2.0
// --moments, --moments-on-host and --master-weights: how an optimizer stores its tensors.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "coda/optimizer.h"

namespace coda::tools {

struct StateFlags {
  std::string moments = "fp32";
  bool moments_on_host = false;
  std::string master_weights = "fp32";

  void add_to(CLI::App& command, const std::string& group);
  // Throws Error for bf16 master weights where `storage` (of what plans read) is fp32.
  void set(Optimizer& optimizer, DType storage) const;
};

}  // namespace coda::tools
