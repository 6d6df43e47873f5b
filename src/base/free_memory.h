// SPDX-License-Identifier: Apache-2.0
// Determines how much memory this process may still allocate, on a machine or in a container. A
// system that is short of memory kills processes instead of failing an allocation, so large
// allocations check this first.
#pragma once

#include <cstdint>
#include <filesystem>

namespace coda {

// Bytes: what the system can give without swapping (MemAvailable), or less where a control group
// of this process, or one around it, has a limit (versions 1 and 2). INT64_MAX where the system
// says neither. `root` is where /proc and /sys are.
int64_t free_memory(const std::filesystem::path& root = "/");

}  // namespace coda
