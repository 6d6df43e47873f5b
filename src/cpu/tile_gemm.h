// SPDX-License-Identifier: Apache-2.0
// The interface to GEMM kernels: c[rows, 64] (+)= a[rows, k] · b[k, 64] on packed operands in
// cache, by our AVX-512 kernel, libxsmm or portable vector code. All kernels of one library add
// products in the order of k with the same instructions and add the old c last, so the bits of an
// element do not depend on the number of rows or on its place.
#pragma once

#include <cstdint>

#include "coda/dtype.h"

namespace coda::cpu {

inline constexpr int64_t kPanelColumns = 64;

enum class GemmLibrary : uint8_t {
  best,  // the first of these that supports the processor
  avx512,
  libxsmm,
  portable,
};

// Resolves `best`; throws Error if the processor does not support `wanted`.
GemmLibrary resolve(GemmLibrary wanted);

// Whether bf16 operands are multiplied directly (bf16 x bf16 -> fp32); otherwise they are widened
// when packed.
bool multiplies_bf16(GemmLibrary library);

// Whether a block of A may be packed by columns: [k, rows] (the layout of a transposed A) or, for
// bf16, [k / 2, rows, 2].
bool takes_a_by_columns(GemmLibrary library);
// Whether TileKernel::a_step may be set: the kernel reads rows of A in place.
bool takes_a_in_place(GemmLibrary library);

// Cache lines of memory, `step` bytes apart.
inline constexpr int64_t kLine = 64;
struct Lines {
  const char* data = nullptr;
  int64_t count = 0;
  int64_t step = kLine;
};

// Memory that a kernel may prefetch while it computes, in this order: operands of the next calls,
// then what will be packed, or moved by an epilogue.
struct Ahead {
  Lines lines[4];
};

// a: row-major [rows, k], or by columns. b: f32 [k, 64]; bf16 [k / 2, 64, 2] (k even). c: stride
// `c_stride`.
struct TileKernel {
  using Function = void (*)();
  using Run = void (*)(const TileKernel& kernel, const void* a, const void* b, float* c,
                       const Ahead& ahead);

  Run run = nullptr;
  Function code = nullptr;  // from libxsmm, generated at run time
  int rows = 0;
  int k = 0;
  int64_t c_stride = 0;
  bool accumulate = false;
  int64_t columns = kPanelColumns;  // needed columns of c; a kernel may compute all 64
  int64_t a_step = 0;  // units of 4 bytes between the rows of A, or by columns between its k

  void operator()(const void* a, const void* b, float* c, const Ahead& ahead = {}) const {
    run(*this, a, b, c, ahead);
  }
};

// `library` is resolved; `operands` is f32, or bf16 if multiplies_bf16(library); by columns if
// takes_a_by_columns(library).
TileKernel make_tile_kernel(GemmLibrary library, DType operands, int rows, int k, int64_t c_stride,
                            bool accumulate, bool a_by_columns = false);

// The portable kernel's code (fp32 operands).
void run_portable_tile(const TileKernel& kernel, const void* a, const void* b, float* c,
                       const Ahead& ahead);

// Our AVX-512 kernel's code; only where the processor has it.
bool has_avx512();
bool has_avx512_bf16();
TileKernel::Run avx512_tile(DType operands, bool a_by_columns);

}  // namespace coda::cpu
