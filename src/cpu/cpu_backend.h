// SPDX-License-Identifier: Apache-2.0
// The CPU backend: programs as tiles over OpenMP threads, GEMMs by our own AVX-512 kernel or by
// libxsmm, epilogues by vector code picked at run time. The same bits for any number of threads and
// any tile shape; a row's result does not depend on the other rows.
#pragma once

#include <cstdint>
#include <memory>

#include "coda/backend.h"
#include "cpu/tile_gemm.h"

namespace coda::cpu {

struct CpuOptions {
  int threads = 0;        // 0: as many as OpenMP would use
  int64_t tile_rows = 0;  // a multiple of 64; 0: chosen for the caches
  int64_t tile_cols = 0;  // a multiple of 64; 0: chosen for the caches
  GemmLibrary gemm = GemmLibrary::best;
};

// Throws Error if an option cannot be met.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace coda::cpu
