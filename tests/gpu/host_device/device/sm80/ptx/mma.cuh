// SPDX-License-Identifier: Apache-2.0
// device/sm80/ptx/mma.cuh on a CPU: the lanes of a warp exchange their fragments.
#pragma once

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

// mma.m16n8k16: lane l holds rows l / 4 and l / 4 + 8 of A and column l / 4 of B, each at the four
// k = 2 (l % 4) + {0, 1, 8, 9}.
template <Element kElement>
void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 lane = thread_index() % 32;
  const auto pair = [](u32 low, u32 high) { return static_cast<u64>(high) << 32 | low; };
  float row[2][16];
  float column[2][16];
  const auto put = [](float (&to)[16], u64 words, u32 quad) {
    for (u32 half = 0; half < 2; ++half)
      unpack<kElement>(static_cast<u32>(words >> 32 * half), to[8 * half + 2 * quad],
                       to[8 * half + 2 * quad + 1]);
  };
  for (u32 side = 0; side < 2; ++side) {
    with_lanes(pair(a[side], a[2 + side]), [&](auto of_lane) {
      for (u32 quad = 0; quad < 4; ++quad) put(row[side], of_lane(lane / 4 * 4 + quad), quad);
      return 0;
    });
  }
  with_lanes(pair(b0, b1), [&](auto of_lane) {
    for (u32 i = 0; i < 2; ++i) {
      for (u32 quad = 0; quad < 4; ++quad)
        put(column[i], of_lane((lane % 4 * 2 + i) * 4 + quad), quad);
    }
    return 0;
  });
  for (u32 i = 0; i < 4; ++i) {
    for (u32 k = 0; k < 16; ++k) d[i] += row[i / 2][k] * column[i % 2][k];
  }
}

}  // namespace coda::device::sm80
