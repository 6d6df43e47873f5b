// SPDX-License-Identifier: Apache-2.0
// The flags of a command that all processes of a run must be given alike.
#pragma once

#include <CLI/CLI.hpp>

#include "coda/communicator.h"

namespace coda::tools {

// All flags as they stand, for Communicator::require_same. A path may be another one on each
// machine, so only whether it is given counts, and what lies there is compared when it is read.
// Flags that say which process this one is are left out.
Settings compared_flags(const CLI::App& command);

}  // namespace coda::tools
