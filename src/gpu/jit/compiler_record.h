// SPDX-License-Identifier: Apache-2.0
// Remembers, next to the cache, which NVRTC was opened last in this environment. Cache keys contain
// the compiler's version. With the record, a process whose kernels are all cached needs neither
// search for nor load the compiler (a hundred megabytes).
// Invariant: a record is valid only while the library file has the recorded size and time, so the
// recorded compiler still exists.
#pragma once

#include <filesystem>
#include <optional>

#include "gpu/jit/nvrtc_compiler.h"

namespace coda::gpu {

// None if there is no valid record.
std::optional<CompilerVersion> recorded_compiler(const std::filesystem::path& folder);
// `library`: the file that was opened. Does nothing if the folder is not writable.
void record_compiler(const std::filesystem::path& folder, const std::filesystem::path& library,
                     CompilerVersion version);

}  // namespace coda::gpu
