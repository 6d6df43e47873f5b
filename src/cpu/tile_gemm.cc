// SPDX-License-Identifier: Apache-2.0
// The choice of kernels, and libxsmm's kernels. libxsmm is column-major: our row-major c[rows, 64]
// = a·b is its C[64, rows] = B·A, so its first operand is our packed panel and its second our
// packed rows.
#include "cpu/tile_gemm.h"

#include <libxsmm.h>

#include <cerrno>
#include <vector>

#include "coda/error.h"

// Replaces open() in libxsmm (settings.cmake), which would write a file to mark its only process.
// libxsmm continues without the file.
extern "C" int coda_open_nothing(const char*, int, ...) {
  errno = EACCES;
  return -1;
}

namespace coda::cpu {
namespace {

int target_architecture() {
  static const bool ready = (libxsmm_init(), true);
  (void)ready;
  return libxsmm_get_target_archid();
}

void run_f32(const TileKernel& kernel, const void* a, const void* b, float* c, const Ahead&) {
  reinterpret_cast<libxsmm_smmfunction>(kernel.code)(static_cast<const float*>(b),
                                                     static_cast<const float*>(a), c);
}

void run_bf16(const TileKernel& kernel, const void* a, const void* b, float* c, const Ahead&) {
  reinterpret_cast<libxsmm_bsmmfunction>(kernel.code)(static_cast<const libxsmm_bfloat16*>(b),
                                                      static_cast<const libxsmm_bfloat16*>(a), c);
}

// libxsmm would start its sums with c. To add c last, the product is computed separately and added.
template <TileKernel::Run run_kernel>
void run_and_add(const TileKernel& kernel, const void* a, const void* b, float* c,
                 const Ahead& ahead) {
  thread_local std::vector<float> sums;
  sums.resize(static_cast<size_t>(kernel.rows * kPanelColumns));
  run_kernel(kernel, a, b, sums.data(), ahead);
  for (int i = 0; i < kernel.rows; ++i) {
    const float* row = sums.data() + i * kPanelColumns;
    float* to = c + i * kernel.c_stride;
    for (int64_t j = 0; j < kPanelColumns; ++j) to[j] += row[j];
  }
}

}  // namespace

GemmLibrary resolve(GemmLibrary wanted) {
  const bool serves = target_architecture() >= LIBXSMM_X86_AVX2;
  require(wanted != GemmLibrary::libxsmm || serves,
          "libxsmm's GEMM kernels need AVX2 or more; use the portable ones on this processor");
  require(wanted != GemmLibrary::avx512 || has_avx512(),
          "this processor has no AVX-512; use libxsmm's GEMM kernels or the portable ones");
  if (wanted != GemmLibrary::best) return wanted;
  if (has_avx512()) return GemmLibrary::avx512;
  return serves ? GemmLibrary::libxsmm : GemmLibrary::portable;
}

bool multiplies_bf16(GemmLibrary library) {
  if (library == GemmLibrary::avx512) return has_avx512_bf16();
  return library == GemmLibrary::libxsmm && target_architecture() >= LIBXSMM_X86_AVX512_CPX;
}

bool takes_a_by_columns(GemmLibrary library) { return library == GemmLibrary::avx512; }
bool takes_a_in_place(GemmLibrary library) { return library == GemmLibrary::avx512; }

TileKernel make_tile_kernel(GemmLibrary library, DType operands, int rows, int k, int64_t c_stride,
                            bool accumulate, bool a_by_columns) {
  TileKernel kernel{run_portable_tile, nullptr, rows, k, c_stride, accumulate};
  kernel.a_step = a_by_columns ? rows : k * size_of(operands) / 4;
  if (library == GemmLibrary::avx512) kernel.run = avx512_tile(operands, a_by_columns);
  if (library != GemmLibrary::libxsmm) return kernel;
  const libxsmm_blasint columns = static_cast<libxsmm_blasint>(kPanelColumns);
  const auto ldc = static_cast<libxsmm_blasint>(accumulate ? kPanelColumns : c_stride);
  const float alpha = 1;
  const float beta = 0;
  if (operands == DType::bf16) {
    const int flags = LIBXSMM_GEMM_FLAG_VNNI_A;
    kernel.run = accumulate ? run_and_add<run_bf16> : run_bf16;
    kernel.code = reinterpret_cast<TileKernel::Function>(
        libxsmm_bsmmdispatch(columns, rows, k, &columns, &k, &ldc, &alpha, &beta, &flags, nullptr));
  } else {
    kernel.run = accumulate ? run_and_add<run_f32> : run_f32;
    kernel.code = reinterpret_cast<TileKernel::Function>(
        libxsmm_smmdispatch(columns, rows, k, &columns, &k, &ldc, &alpha, &beta, nullptr, nullptr));
  }
  require(kernel.code != nullptr, "libxsmm made no GEMM kernel for " + std::to_string(rows) +
                                      " rows and k = " + std::to_string(k) +
                                      "; use the portable GEMM");
  return kernel;
}

}  // namespace coda::cpu
