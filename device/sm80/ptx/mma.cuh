// SPDX-License-Identifier: Apache-2.0
// mma.sync: a warp multiplies 16 rows of A by 8 columns of B, 16 deep along K, and accumulates in
// fp32. The operands are fragments as ldmatrix loads them: load_matrices
// (device/ptx/matrix_move.cuh) for an operand that is contiguous along K, else
// load_matrices_transposed below.
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

// d[0..1] are neighbouring columns of the thread's first row, d[2..3] of the row 8 below it.
template <Element kElement>
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(is_16_bits(kElement));
  if constexpr (kElement == Element::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace coda::device::sm80
