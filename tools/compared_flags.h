// SPDX-License-Identifier: Apache-2.0
// The flags of a command that must be equal in all processes of a run.
#pragma once

#include <CLI/CLI.hpp>

#include "coda/communicator.h"

namespace coda::tools {

// All flags with their values, for Communicator::require_same. A path may differ between machines,
// so only its presence is compared; its contents are compared when they are read. Flags that
// identify the process are left out.
Settings compared_flags(const CLI::App& command);

}  // namespace coda::tools
