// SPDX-License-Identifier: Apache-2.0
// The file with this machine's measurements of `coda tune`. It is in the cache folder, and its name
// contains device, driver and compiler, on which the times depend.
// Invariant: the file is replaced atomically; an unreadable file causes only a notice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gpu/configure/tuned_rows.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/launch/context.h"

namespace coda::gpu {

// The driver's own version ("580.159.04") if the system reports it; else its CUDA version.
std::string driver_version_text();

// tuned/<device>, <driver>, <compiler>.txt in the cache folder, with the target if it is not sm90;
// empty if `cache_folder` is empty.
std::filesystem::path tuned_file(const std::filesystem::path& cache_folder,
                                 const DeviceInfo& device, CompilerVersion compiler,
                                 const Target& target);
// The file that was written last for this target and a GPU with this number of multiprocessors (0:
// any), for machines without a GPU; empty if there is none.
std::filesystem::path latest_tuned_file(const std::filesystem::path& cache_folder,
                                        const Target& target, uint32_t multiprocessors = 0);

// The measurements for this device; null if there are none.
std::shared_ptr<const TunedRows> tuned_rows_of(const std::filesystem::path& cache_folder,
                                               const DeviceInfo& device, KernelBuilder& builder);

// Null if the file does not exist.
std::shared_ptr<const TunedRows> load_tuned_rows(const std::filesystem::path& file);

// Adds rows to the file and replaces rows of the same kernels. Throws Error naming the file.
void save_tuned_rows(const std::filesystem::path& file, const TunedRows& rows);

}  // namespace coda::gpu
