// SPDX-License-Identifier: Apache-2.0
// What `coda tune` measured on this machine: a file of rows in the cache's folder, named by all
// that the times depend on beside the kernel: device, driver and compiler.
// Invariant: the file is replaced as a whole; one that cannot be read costs a notice, nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gpu/configure/tuned_rows.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/launch/context.h"

namespace coda::gpu {

// The version of the driver itself ("580.159.04"), where the system tells; else of its CUDA.
std::string driver_version_text();

// tuned/<device>, <driver>, <compiler>.txt in the cache's folder; empty if that is empty.
std::filesystem::path tuned_file(const std::filesystem::path& cache_folder,
                                 const DeviceInfo& device, CompilerVersion compiler);
// Where no GPU says which: the one that was written last, of GPUs with so many multiprocessors (0:
// with any number); empty if there is none.
std::filesystem::path latest_tuned_file(const std::filesystem::path& cache_folder,
                                        uint32_t multiprocessors = 0);

// What was tuned on this device; null if nothing was.
std::shared_ptr<const TunedRows> tuned_rows_of(const std::filesystem::path& cache_folder,
                                               const DeviceInfo& device, KernelBuilder& builder);

// Null if there is no such file.
std::shared_ptr<const TunedRows> load_tuned_rows(const std::filesystem::path& file);

// Adds rows to the file, in place of those of the same kernels. Throws Error naming the file.
void save_tuned_rows(const std::filesystem::path& file, const TunedRows& rows);

}  // namespace coda::gpu
