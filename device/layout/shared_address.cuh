// SPDX-License-Identifier: Apache-2.0
// Addresses in shared memory, as types of their own: the compiler takes neither for the other, nor
// for an address in global memory (u64), an offset or a count (u32).
#pragma once

#include "device/types.cuh"

namespace coda::device {

// In the shared memory of the thread's own CTA.
struct SharedAddress {
  u32 byte = 0;

  constexpr bool operator==(const SharedAddress&) const = default;
};
constexpr SharedAddress operator+(SharedAddress from, u32 bytes) { return {from.byte + bytes}; }
constexpr SharedAddress operator-(SharedAddress from, u32 bytes) { return {from.byte - bytes}; }
// A step inside a swizzled row (fragment_step).
constexpr SharedAddress operator^(SharedAddress from, u32 step) { return {from.byte ^ step}; }

// In that of any CTA of the cluster.
struct ClusterAddress {
  u32 byte = 0;
};
constexpr ClusterAddress operator+(ClusterAddress from, u32 bytes) { return {from.byte + bytes}; }

}  // namespace coda::device
