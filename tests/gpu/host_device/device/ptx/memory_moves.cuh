// SPDX-License-Identifier: Apache-2.0
// device/ptx/memory_moves.cuh on a CPU; addresses must be as aligned as the GPU wants them.
#pragma once

#include <cstdlib>
#include <cstring>

#include "device/ptx/barrier.cuh"

namespace coda::device {

inline u8* at_address(u64 address, u64 alignment) {
  if (address % alignment != 0) std::abort();
  return reinterpret_cast<u8*>(address);
}

// Elements of a pair as they lie in memory.
template <class T>
void load_pair_of(T (&x)[2], u64 address, u32 both, u32 first, u32 second) {
  std::memset(x, 0, sizeof(x));
  if (both != 0) std::memcpy(x, at_address(address, 2 * sizeof(T)), 2 * sizeof(T));
  if (first != 0) std::memcpy(&x[0], at_address(address, sizeof(T)), sizeof(T));
  if (second != 0) std::memcpy(&x[1], at_address(address + sizeof(T), sizeof(T)), sizeof(T));
}
template <class T>
void store_pair_of(const T (&x)[2], u64 address, u32 both, u32 first, u32 second) {
  if (both != 0) std::memcpy(at_address(address, 2 * sizeof(T)), x, 2 * sizeof(T));
  if (first != 0) std::memcpy(at_address(address, sizeof(T)), &x[0], sizeof(T));
  if (second != 0) std::memcpy(at_address(address + sizeof(T), sizeof(T)), &x[1], sizeof(T));
}

inline u32 load_half_pair(u64 address, u32 both, u32 first, u32 second) {
  u16 x[2];
  load_pair_of(x, address, both, first, second);
  return static_cast<u32>(x[1]) << 16 | x[0];
}
inline u32 load_byte_pair(u64 address, u32 both, u32 first, u32 second) {
  u8 x[2];
  load_pair_of(x, address, both, first, second);
  return static_cast<u32>(x[1]) << 8 | x[0];
}
inline void load_float_pair(float (&x)[2], u64 address, u32 both, u32 first, u32 second) {
  load_pair_of(x, address, both, first, second);
}
inline void store_float_pair(u64 address, u32 both, u32 first, u32 second, const float (&x)[2]) {
  store_pair_of(x, address, both, first, second);
}
inline void store_half_pair(u64 address, u32 both, u32 first, u32 second, u32 packed) {
  const u16 x[2] = {static_cast<u16>(packed), static_cast<u16>(packed >> 16)};
  store_pair_of(x, address, both, first, second);
}

// What lies beside a tensor is NaN, and stays so whatever is added to it.
inline void add_float(u64 address, float x) {
  float& sum = *reinterpret_cast<float*>(at_address(address, 4));
  if (sum != sum) std::abort();
  sum += x;
}
inline void add_two_floats(u64 address, const float (&x)[2]) {
  at_address(address, 8);
  for (u32 i = 0; i < 2; ++i) add_float(address + 4 * i, x[i]);
}
inline void add_four_floats(u64 address, const float (&x)[4]) {
  at_address(address, 16);
  for (u32 i = 0; i < 4; ++i) add_float(address + 4 * i, x[i]);
}

inline void store_shared(SharedAddress address, float x) {
  std::memcpy(shared_byte(address), &x, 4);
}
inline void store_shared(SharedAddress address, const u32 (&words)[2]) {
  if (address.byte % 8 != 0) std::abort();
  std::memcpy(shared_byte(address), words, 8);
}
inline float load_shared(SharedAddress address) {
  float x;
  std::memcpy(&x, shared_byte(address), 4);
  return x;
}
inline void load_shared(u32 (&words)[2], SharedAddress address) {
  if (address.byte % 8 != 0) std::abort();
  std::memcpy(words, shared_byte(address), 8);
}
inline u64 wide_product(u32 a, u32 b) { return static_cast<u64>(a) * b; }

}  // namespace coda::device
