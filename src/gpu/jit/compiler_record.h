// SPDX-License-Identifier: Apache-2.0
// Which NVRTC a process in this environment opened last, kept beside the cache: keys of kernels
// need its version, and so a process whose kernels are all in the cache need neither look for the
// compiler nor open it (a hundred megabytes).
// Invariant: a record counts as long as the file that it names has the same size and time; so what
// it leads to was made by a compiler that is still there.
#pragma once

#include <filesystem>
#include <optional>

#include "gpu/jit/nvrtc_compiler.h"

namespace coda::gpu {

// Nothing: there is no record, or it no longer counts.
std::optional<CompilerVersion> recorded_compiler(const std::filesystem::path& folder);
// `library` is the file that was opened. Where the folder cannot be written nothing is kept.
void record_compiler(const std::filesystem::path& folder, const std::filesystem::path& library,
                     CompilerVersion version);

}  // namespace coda::gpu
