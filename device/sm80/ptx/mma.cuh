// SPDX-License-Identifier: Apache-2.0
// mma.sync: a warp multiplies 16 rows of A by 8 columns of B, 32 bytes deep along K, and
// accumulates in fp32. The operands are fragments as ldmatrix loads them: load_matrices
// (device/ptx/matrix_move.cuh) for an operand that is contiguous along K, else
// load_matrices_transposed below, for 16-bit elements only. In bytes, the fragments of 8-bit
// elements are those of 16-bit elements: ldmatrix moves both. 8-bit floats need compute capability
// 8.9. The instruction is written in a macro, because the element types are part of the assembly
// string, which a template cannot compose.
#pragma once

#include "device/ptx/matrix_move.cuh"

namespace coda::device::sm80 {

__device__ __forceinline__ void load_matrices_transposed(u32 (&fragment)[4],
                                                         SharedAddress address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address.byte)
               : "memory");
}

#define CODA_MMA(shape, a_type, b_type)                                               \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." a_type "." b_type            \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

// d += a · b. d[0..1] are neighbouring columns of the thread's first row, d[2..3] of the row 8
// below it.
template <Element kA, Element kB>
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(are_operands(kA, kB));
  if constexpr (kA == Element::bf16) {
    CODA_MMA("m16n8k16", "bf16", "bf16");
  } else if constexpr (kA == Element::f16) {
    CODA_MMA("m16n8k16", "f16", "f16");
  } else if constexpr (kA == Element::e4m3 && kB == Element::e4m3) {
    CODA_MMA("m16n8k32", "e4m3", "e4m3");
  } else if constexpr (kA == Element::e4m3) {
    CODA_MMA("m16n8k32", "e4m3", "e5m2");
  } else if constexpr (kB == Element::e4m3) {
    CODA_MMA("m16n8k32", "e5m2", "e4m3");
  } else {
    CODA_MMA("m16n8k32", "e5m2", "e5m2");
  }
}

#undef CODA_MMA

}  // namespace coda::device::sm80
