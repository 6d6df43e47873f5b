// SPDX-License-Identifier: Apache-2.0
// Types for addresses in shared memory, so that the compiler rejects mixing them with each other,
// with global addresses (u64), and with offsets or counts (u32).
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

// In the shared memory of any CTA of the cluster.
struct ClusterAddress {
  u32 byte = 0;
};
constexpr ClusterAddress operator+(ClusterAddress from, u32 bytes) { return {from.byte + bytes}; }

}  // namespace coda::device
