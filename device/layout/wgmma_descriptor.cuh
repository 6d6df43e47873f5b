// SPDX-License-Identifier: Apache-2.0
// The 64-bit descriptor of a wgmma operand in shared memory, for tiles that TMA wrote with the
// 128-byte swizzle, contiguous along K or along the outer dimension. Constexpr, tested on the host.
// Invariant: tiles start at multiples of 1024 bytes, so the descriptor's base offset is zero.
#pragma once

#include "device/config.cuh"

namespace coda::device {

// Contiguous along K: rows of 64 k, one row for each outer index; eight rows are 1024 bytes.
// Contiguous along the outer dimension: panels of 64 outer indices, each of 64 rows (one a k) of
// 128 bytes; a panel is 8192 bytes, eight k are 1024.
inline constexpr u32 kEightRows = 8 * kSwizzleBytes;
inline constexpr u32 kOuterPanel = kSwizzleBytes / kElementBytes;
inline constexpr u32 kOuterPanelBytes = kBlockK * kSwizzleBytes;

constexpr u64 wgmma_descriptor(Major major, u32 address) {
  const u64 leading = major == Major::k ? 1 : kOuterPanelBytes >> 4;
  const u64 stride = kEightRows >> 4;
  const u64 swizzle_128b_mode = 1;
  return (static_cast<u64>(address & 0x3ffff) >> 4) | leading << 16 | stride << 32 |
         swizzle_128b_mode << 62;
}

// The whole descriptor from its low half, which is the only half that contains the address.
constexpr u64 whole_descriptor(Major major, u32 low) {
  return (wgmma_descriptor(major, 0) >> 32) << 32 | low;
}

// Add this to a descriptor to advance by `outer` indices (a multiple of 64) and `k` (a multiple of
// 16). The swizzle depends on the address, so advancing inside a swizzled row is an addition.
constexpr u32 descriptor_step(Major major, u32 outer, u32 k) {
  return major == Major::k ? (outer * kSwizzleBytes + k * kElementBytes) >> 4
                           : (outer / kOuterPanel * kOuterPanelBytes + k * kSwizzleBytes) >> 4;
}

}  // namespace coda::device
