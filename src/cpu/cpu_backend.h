// SPDX-License-Identifier: Apache-2.0
// The CPU backend: tiles of programs are distributed over OpenMP threads; GEMMs use our AVX-512
// kernel or libxsmm; epilogues use vector code selected at run time. The bits do not depend on the
// number of threads or the tile shape, and the result of a row does not depend on other rows.
#pragma once

#include <cstdint>
#include <memory>

#include "coda/backend.h"
#include "cpu/tile_gemm.h"

namespace coda::cpu {

struct CpuOptions {
  int threads = 0;        // 0: OpenMP's default
  int64_t tile_rows = 0;  // a multiple of 64; 0: chosen by cache sizes
  int64_t tile_cols = 0;  // a multiple of 64; 0: chosen by cache sizes
  GemmLibrary gemm = GemmLibrary::best;
};

// Throws Error if an option is not possible.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace coda::cpu
