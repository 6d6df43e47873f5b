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

// mma.m16n8k16 and, with 8-bit elements, m16n8k32: lane l holds rows l / 4 and l / 4 + 8 of A and
// column l / 4 of B, of each the elements in bytes 4 (l % 4) to 4 (l % 4) + 3 along K, and in those
// 16 bytes further.
template <Element kA, Element kB>
void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr u32 kWord = 4 / bytes_of(kA);  // elements of a register
  constexpr u32 kDepth = 8 * kWord;
  const u32 lane = thread_index() % 32;
  const auto pair = [](u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; };
  float row[2][kDepth];
  float column[2][kDepth];
  const auto put = [](auto unpacked, float (&to)[kDepth], u64 words, u32 quad) {
    for (u32 half = 0; half < 2; ++half)
      unpacked(static_cast<u32>(words >> 32 * half), &to[(4 * half + quad) * kWord]);
  };
  for (u32 side = 0; side < 2; ++side) {
    with_lanes(pair(a[side], a[2 + side]), [&](auto of_lane) {
      for (u32 quad = 0; quad < 4; ++quad)
        put(unpack_word<kA>, row[side], of_lane(lane / 4 * 4 + quad), quad);
      return 0;
    });
  }
  with_lanes(pair(b0, b1), [&](auto of_lane) {
    for (u32 i = 0; i < 2; ++i) {
      for (u32 quad = 0; quad < 4; ++quad)
        put(unpack_word<kB>, column[i], of_lane((lane % 4 * 2 + i) * 4 + quad), quad);
    }
    return 0;
  });
  for (u32 i = 0; i < 4; ++i) {
    for (u32 k = 0; k < kDepth; ++k) d[i] += row[i / 2][k] * column[i % 2][k];
  }
}

}  // namespace coda::device::sm80
