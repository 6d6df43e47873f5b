// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox 2x32 with 10 rounds (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A number is a function of a key and a
// counter, so that it is the same wherever and whenever it is made: a backward makes a mask again
// instead of reading it. The device has the same text in device/values/philox.cuh.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace coda {

constexpr std::array<uint32_t, 2> philox(std::array<uint32_t, 2> counter, uint32_t key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product = uint64_t{0xD256D193} * counter[0];
    counter = {static_cast<uint32_t>(product >> 32) ^ key ^ counter[1],
               static_cast<uint32_t>(product)};
    key += 0x9E3779B9;
  }
  return counter;
}

// In [0, 1), a multiple of 2^-24: of the whole parts of three numbers from 0 to below 2^32; NaN if
// one lies outside. Two columns from an even one on are the two words of one block, so that who
// makes both makes one block.
constexpr float random_number(float seed, float row, float column) {
  for (const float x : {seed, row, column}) {
    if (!(x >= 0 && x < 4294967296.0F)) return std::numeric_limits<float>::quiet_NaN();
  }
  const auto at = static_cast<uint32_t>(column);
  const auto words = philox({static_cast<uint32_t>(row), at / 2}, static_cast<uint32_t>(seed));
  return static_cast<float>(words[at % 2] >> 8) * 0x1p-24F;
}

}  // namespace coda
