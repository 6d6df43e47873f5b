// SPDX-License-Identifier: Apache-2.0
// device/sm80/ptx/mma.cuh on a CPU: the lanes of a warp exchange their fragments.
#pragma once

#include "device/element.cuh"
#include "device/ptx/matrix_move.cuh"

namespace coda::device::sm80 {

// ldmatrix with .trans: lane l gets, from each stored 8x8 matrix, the elements of column l / 4 in
// rows 2 (l % 4) and 2 (l % 4) + 1.
inline void load_matrices_transposed(u32 (&fragment)[4], SharedAddress address) {
  const u32 lane = thread_index() % 32;
  if (address.byte % 16 != 0) std::abort();
  with_lanes(address.byte, [&](auto of_lane) {
    for (u32 matrix = 0; matrix < 4; ++matrix) {
      u16 pair[2];
      for (u32 i = 0; i < 2; ++i) {
        const u32 row = of_lane(8 * matrix + lane % 4 * 2 + i);
        std::memcpy(&pair[i], shared_byte({row + lane / 4 * 2}), 2);
      }
      fragment[matrix] = static_cast<u32>(pair[1]) << 16 | pair[0];
    }
    return 0;
  });
  synchronize_warp();  // one instruction moves the matrices of all lanes
}

// The elements of a register, by increasing address.
template <Element kElement>
void unpack_word(u32 word, float* to) {
  if constexpr (is_16_bits(kElement)) {
    unpack<kElement>(word, to[0], to[1]);
  } else {
    for (u32 i = 0; i < 4; ++i) to[i] = from_eight_bits<kElement>(static_cast<u8>(word >> 8 * i));
  }
}

// What the lanes of a warp have put together: A by rows, B by columns.
template <u32 kDepth>
struct HostOperands {
  float a[16][kDepth];
  float b[8][kDepth];
};

// mma.m16n8k16 and, with 8-bit elements, m16n8k32: lane l holds rows l / 4 and l / 4 + 8 of A and
// column l / 4 of B, of each the elements in bytes 4 (l % 4) to 4 (l % 4) + 3 along K, and in those
// 16 bytes further. Products alternate between two sets of operands, as exchanges do (lanes.cuh).
template <Element kA, Element kB>
void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr u32 kWord = 4 / bytes_of(kA);  // elements of a register
  constexpr u32 kDepth = 8 * kWord;
  static HostOperands<kDepth> of_warps[kMostHostThreads / 32][2];
  static u32 products[kMostHostThreads];
  const u32 thread = thread_index();
  const u32 row = thread % 32 / 4;
  const u32 quad = thread % 4;
  HostOperands<kDepth>& operands = of_warps[thread / 32][products[thread]++ % 2];
  for (u32 half = 0; half < 2; ++half) {
    const u32 k = (4 * half + quad) * kWord;
    for (u32 side = 0; side < 2; ++side)
      unpack_word<kA>(a[2 * half + side], &operands.a[row + 8 * side][k]);
    unpack_word<kB>(half == 0 ? b0 : b1, &operands.b[row][k]);
  }
  synchronize_warp();
  for (u32 i = 0; i < 4; ++i) {
    const float* const of_row = operands.a[row + i / 2 * 8];
    const float* const of_column = operands.b[2 * quad + i % 2];
    for (u32 k = 0; k < kDepth; ++k) d[i] += of_row[k] * of_column[k];
  }
}

}  // namespace coda::device::sm80
