// SPDX-License-Identifier: Apache-2.0
// device/ptx/global_memory.cuh on a CPU; addresses must be as aligned as the GPU wants them.
#pragma once

#include <bit>
#include <cstdlib>
#include <cstring>

#include "device/element.cuh"

namespace coda::device {

enum class Access { streamed, cached, in_place };

template <Access kAccess>
void load_piece(u32 (&word)[4], u64 address) {
  if (address % 16 != 0) std::abort();
  std::memcpy(word, reinterpret_cast<const void*>(address), 16);
}
inline void store_piece(u64 address, const u32 (&word)[4]) {
  if (address % 16 != 0) std::abort();
  std::memcpy(reinterpret_cast<void*>(address), word, 16);
}
template <Access kAccess>
void load_half_piece(u32 (&word)[2], u64 address) {
  if (address % 8 != 0) std::abort();
  std::memcpy(word, reinterpret_cast<const void*>(address), 8);
}
inline void store_half_piece(u64 address, const u32 (&word)[2]) {
  if (address % 8 != 0) std::abort();
  std::memcpy(reinterpret_cast<void*>(address), word, 8);
}

template <Element kStored>
float word_value(u32 word) {
  return kStored == Element::f32 ? std::bit_cast<float>(word)
                                 : static_cast<float>(static_cast<int>(word));
}
inline u32 float_word(float value) { return std::bit_cast<u32>(value); }
inline float double_value(u32 low, u32 high) {
  return static_cast<float>(std::bit_cast<double>(static_cast<u64>(high) << 32 | low));
}
inline void double_words(float value, u32& low, u32& high) {
  const u64 bits = std::bit_cast<u64>(static_cast<double>(value));
  low = static_cast<u32>(bits);
  high = static_cast<u32>(bits >> 32);
}
// The threads of a block take turns, and blocks too.
inline void raise_word(u64 address, u32 bits) {
  u32 word;
  std::memcpy(&word, reinterpret_cast<const void*>(address), 4);
  if (bits > word) std::memcpy(reinterpret_cast<void*>(address), &bits, 4);
}
inline u32 raised_word(u64 address) {
  u32 word;
  std::memcpy(&word, reinterpret_cast<const void*>(address), 4);
  return word;
}
inline u32 load_index(u64 tensor, u64 index) { return reinterpret_cast<const u32*>(tensor)[index]; }

}  // namespace coda::device
