// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox 4x32 with 10 rounds (Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A number is a function of a key and a
// counter, so that it is the same wherever and whenever it is made: a backward makes a mask again
// instead of reading it. The device has the same text in device/values/philox.cuh.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace coda {

constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// In [0, 1), a multiple of 2^-24: of the whole parts of three numbers from 0 to below 2^32; NaN if
// one lies outside.
constexpr float random_number(float seed, float row, float column) {
  for (const float x : {seed, row, column}) {
    if (!(x >= 0 && x < 4294967296.0F)) return std::numeric_limits<float>::quiet_NaN();
  }
  const uint32_t word = philox({static_cast<uint32_t>(row), static_cast<uint32_t>(column), 0, 0},
                               {static_cast<uint32_t>(seed), 0})[0];
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

}  // namespace coda
