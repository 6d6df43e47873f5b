// SPDX-License-Identifier: Apache-2.0
// A descriptor's address, strides and steps, against where TMA put each element of a stage.
#include "device/layout/wgmma_descriptor.cuh"

#include <gtest/gtest.h>

#include "device/layout/fragment.cuh"

namespace coda::device {
namespace {

struct Fields {
  u32 address;  // bytes
  u32 leading;  // bytes
  u32 stride;   // bytes
  u32 base_offset;
  u32 swizzle;
};

Fields fields(u64 descriptor) {
  return {.address = static_cast<u32>(descriptor & 0x3fff) << 4,
          .leading = static_cast<u32>(descriptor >> 16 & 0x3fff) << 4,
          .stride = static_cast<u32>(descriptor >> 32 & 0x3fff) << 4,
          .base_offset = static_cast<u32>(descriptor >> 49 & 7),
          .swizzle = static_cast<u32>(descriptor >> 62)};
}

// Byte offset, before the swizzle, of element (outer, k) of a stage as the TMA boxes lie in it.
u32 offset_in_stage(Major major, u32 outer, u32 k) {
  if (major == Major::k) return outer * kSwizzleBytes + k * kElementBytes;
  return outer / 64 * kOuterPanelBytes + k * kSwizzleBytes + outer % 64 * kElementBytes;
}

// Byte offset, before the swizzle, at which the tensor core looks for element (outer, k) of the
// operand that a descriptor describes: eight-row groups `stride` apart, for the outer major also
// 64-wide panels `leading` apart.
u32 offset_by_descriptor(Major major, const Fields& f, u32 outer, u32 k) {
  if (major == Major::k) {
    return f.address + outer / 8 * f.stride + outer % 8 * kSwizzleBytes + k * kElementBytes;
  }
  return f.address + outer / 64 * f.leading + k / 8 * f.stride + k % 8 * kSwizzleBytes +
         outer % 64 * kElementBytes;
}

TEST(WgmmaDescriptor, FindsEachElementOfAStage) {
  for (const Major major : {Major::k, Major::outer}) {
    for (const u32 base : {0u, 1024u, 16384u, 196608u}) {
      for (u32 first_outer = 0; first_outer < 256; first_outer += 64) {
        for (u32 first_k = 0; first_k < kBlockK; first_k += kWgmmaK) {
          const u64 descriptor =
              wgmma_descriptor(major, base) + descriptor_step(major, first_outer, first_k);
          const Fields f = fields(descriptor);
          EXPECT_EQ(f.swizzle, 1u);
          EXPECT_EQ(f.base_offset, 0u);
          for (u32 outer = 0; outer < 256 - first_outer; ++outer) {
            for (u32 k = 0; k < kWgmmaK; ++k) {
              const u32 there = base + offset_in_stage(major, first_outer + outer, first_k + k);
              // The swizzle is applied to the address bits, on both sides alike.
              ASSERT_EQ(swizzle_128b(offset_by_descriptor(major, f, outer, k)),
                        swizzle_128b(there));
            }
          }
        }
      }
    }
  }
}

// Steps are added to a whole descriptor, so they must never carry out of the address field.
TEST(WgmmaDescriptor, StepsStayInTheAddressField) {
  const u32 last = 232448 - 1024;
  for (const Major major : {Major::k, Major::outer}) {
    const u64 descriptor =
        wgmma_descriptor(major, last) + descriptor_step(major, 0, kBlockK - kWgmmaK);
    EXPECT_EQ(descriptor >> 16, wgmma_descriptor(major, 0) >> 16);
  }
}

}  // namespace
}  // namespace coda::device
