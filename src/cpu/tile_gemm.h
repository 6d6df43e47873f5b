// SPDX-License-Identifier: Apache-2.0
// The one narrow interface to GEMM kernels: c[rows, 64] (+)= a[rows, k] · b[k, 64] on packed
// operands in cache, by libxsmm or by portable vector code. Every kernel of one library adds
// products in the order of k with the same instructions, so that an element's bits do not depend on
// rows, on where k is cut, or on its place.
#pragma once

#include <cstdint>

#include "coda/dtype.h"

namespace coda::cpu {

inline constexpr int64_t kPanelColumns = 64;

enum class GemmLibrary : uint8_t {
  best,  // libxsmm where it has code for the processor, else portable
  libxsmm,
  portable,
};

// The library that `wanted` stands for on this processor; throws Error if libxsmm is asked for and
// cannot serve it.
GemmLibrary resolve(GemmLibrary wanted);

// Whether bf16 operands are multiplied as they are (bf16 x bf16 -> fp32); otherwise they are
// widened when packed.
bool multiplies_bf16(GemmLibrary library);

// a: row-major [rows, k], stride k. b: f32 [k, 64]; bf16 [k / 2, 64, 2] (k even). c: stride
// `c_stride`.
struct TileKernel {
  using Function = void (*)();
  using Run = void (*)(const TileKernel& kernel, const void* a, const void* b, float* c);

  Run run = nullptr;
  Function code = nullptr;  // libxsmm's, made at run time
  int rows = 0;
  int k = 0;
  int64_t c_stride = 0;
  bool accumulate = false;

  void operator()(const void* a, const void* b, float* c) const { run(*this, a, b, c); }
};

// `library` is resolved; `operands` is f32, or bf16 if multiplies_bf16(library).
TileKernel make_tile_kernel(GemmLibrary library, DType operands, int rows, int k, int64_t c_stride,
                            bool accumulate);

// The portable kernel's code (fp32 operands).
void run_portable_tile(const TileKernel& kernel, const void* a, const void* b, float* c);

}  // namespace coda::cpu
