// SPDX-License-Identifier: Apache-2.0
// Random numbers as a pure function of (seed, stream, counter). A number does not depend on earlier
// ones, so weights do not depend on the order of initialisation, and a resumed run sees the same
// data as an uninterrupted one.
#pragma once

#include <cstdint>
#include <string_view>

namespace coda {

// The finaliser of SplitMix64: a bijection of 64-bit numbers whose output bits all depend on all
// input bits.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  return mix_bits(mix_bits(mix_bits(seed + kGolden) ^ (stream * kGolden + 1)) + counter * kGolden);
}

// In [0, 1), 53 bits.
constexpr double random_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

// A name's stream (FNV-1a).
constexpr uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace coda
