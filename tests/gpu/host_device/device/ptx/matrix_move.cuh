// SPDX-License-Identifier: Apache-2.0
// device/ptx/matrix_move.cuh on a CPU.
#pragma once

#include <cmath>

#include "coda/float16.h"
#include "device/config.cuh"
#include "device/ptx/barrier.cuh"

namespace coda::device {

// Lane l gives the address of row l % 8 of matrix l / 8, and has elements 2 (l % 4) and the next of
// row l / 4 of each.
template <class Move>
void move_matrices(SharedAddress address, Move move) {
  const u32 lane = thread_index() % 32;
  with_lanes(address.byte, [&](auto of_lane) {
    for (u32 matrix = 0; matrix < 4; ++matrix) {
      move(matrix, shared_byte({of_lane(8 * matrix + lane / 4) + 4 * (lane % 4)}));
    }
    return 0;
  });
  synchronize_warp();  // one instruction moves the matrices of all lanes
}
inline void load_matrices(u32 (&fragment)[4], SharedAddress address) {
  move_matrices(address,
                [&](u32 matrix, const u8* from) { std::memcpy(&fragment[matrix], from, 4); });
}
inline void store_matrices(SharedAddress address, const u32 (&fragment)[4]) {
  move_matrices(address, [&](u32 matrix, u8* to) { std::memcpy(to, &fragment[matrix], 4); });
}

template <Element kElement>
u32 pack(float low, float high) {
  const auto bits = [](float x) -> u32 {
    return kElement == Element::bf16 ? bf16_from_float(x) : f16_from_float(x);
  };
  return bits(high) << 16 | bits(low);
}
template <Element kElement>
void unpack(u32 packed, float& low, float& high) {
  const auto value = [](u32 bits) {
    return kElement == Element::bf16 ? float_from_bf16(static_cast<u16>(bits))
                                     : float_from_f16(static_cast<u16>(bits));
  };
  low = value(packed & 0xffff);
  high = value(packed >> 16);
}

template <Element kElement, class Function>
u32 packed_of_each(u32 a, u32 b, Function function) {
  float x[2];
  float y[2];
  unpack<kElement>(a, x[0], x[1]);
  unpack<kElement>(b, y[0], y[1]);
  return pack<kElement>(function(x[0], y[0]), function(x[1], y[1]));
}
template <Element kElement>
u32 multiply_packed(u32 a, u32 b) {
  return packed_of_each<kElement>(a, b, [](float x, float y) { return x * y; });
}
template <Element kElement>
u32 maximum_packed(u32 a, u32 b) {
  return packed_of_each<kElement>(a, b, [](float x, float y) {
    return x != x || y != y ? NAN : x > y ? x : y;
  });
}

}  // namespace coda::device
