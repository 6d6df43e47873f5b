// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/wgmma.cuh on a CPU, for 16-bit elements. A product reads its operands and adds to
// its sums only when its thread waits for it, so a kernel that does not wait, or that changes an
// operand before, computes something else.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "device/layout/fragment.cuh"
#include "device/ptx/matrix_move.cuh"

namespace coda::device {

// The groups of products of one thread that have not ended. The last group is not yet committed. A
// product gets its number among the products of one wait.
using HostProducts = std::vector<std::vector<std::function<void(u32)>>>;
inline HostProducts& host_products() {
  static HostProducts of_thread[kMostHostThreads];
  HostProducts& own = of_thread[thread_index()];
  if (own.empty()) own.emplace_back();
  return own;
}

// The right operands, [column, k], of the products of one wait of a warp. The first lane to compute
// a product reads its operand for all lanes, which compute it before any of them goes on.
inline std::deque<std::vector<float>>& host_rights() {
  static std::deque<std::vector<float>> of_warp[kMostHostThreads / 32];
  return of_warp[thread_index() / 32];
}

inline void wgmma_fence() {}
inline void wgmma_commit() { host_products().emplace_back(); }
template <u32 kPending>
void wgmma_wait() {
  synchronize_warp();
  HostProducts& groups = host_products();
  u32 number = 0;
  while (groups.size() > kPending + 1) {
    for (const auto& product : groups.front()) product(number++);
    groups.erase(groups.begin());
  }
  synchronize_warp();
  host_rights().clear();
}
template <u32 kCount>
void pin_registers(float (&)[kCount]) {}

// An element of an operand by way of its descriptor.
template <Element kElement>
float operand_element(u64 descriptor, Major major, u32 outer, u32 k) {
  const auto field = [&](u32 first) { return static_cast<u32>(descriptor >> first & 0x3fff) << 4; };
  const u32 offset = major == Major::k
                         ? outer / 8 * field(32) + outer % 8 * kSwizzleBytes + k * kElementBytes
                         : outer / 64 * field(16) + k / 8 * field(32) + k % 8 * kSwizzleBytes +
                               outer % 64 * kElementBytes;
  u16 bits;
  std::memcpy(&bits, shared_byte({swizzle_128b(field(0) + offset)}), 2);
  return kElement == Element::bf16 ? float_from_bf16(bits) : float_from_f16(bits);
}

template <u32 kN, Element kElement, Major kMajorB>
const std::vector<float>& host_right(u32 number, u64 b) {
  std::deque<std::vector<float>>& rights = host_rights();
  if (number == rights.size()) {
    std::vector<float>& right = rights.emplace_back(kN * kWgmmaK);
    for (u32 column = 0; column < kN; ++column) {
      for (u32 k = 0; k < kWgmmaK; ++k)
        right[column * kWgmmaK + k] = operand_element<kElement>(b, kMajorB, column, k);
    }
  }
  return rights[number];
}

template <u32 kN>
void add_host_product(float* d, const float (&left)[2][kWgmmaK], const std::vector<float>& right) {
  const u32 thread = thread_index() % kWarpgroupSize;
  for (u32 i = 0; i < kN / 2; ++i) {
    const u32 row = fragment_row(thread, i) / 8 % 2;
    const float* const column = &right[fragment_column(thread, i) * kWgmmaK];
    for (u32 k = 0; k < kWgmmaK; ++k) d[i] += left[row][k] * column[k];
  }
}

template <u32 kN, Element kA, Element kB, Major kMajorA, Major kMajorB>
void wgmma(float (&d)[kN / 2], u64 a, u64 b, u32 accumulate) {
  static_assert(kA == kB && is_16_bits(kA));
  host_products().back().push_back([d = &d[0], a, b, accumulate](u32 number) {
    const u32 thread = thread_index() % kWarpgroupSize;
    float left[2][kWgmmaK];
    for (u32 side = 0; side < 2; ++side) {
      for (u32 k = 0; k < kWgmmaK; ++k)
        left[side][k] = operand_element<kA>(a, kMajorA, fragment_row(thread, 2 * side), k);
    }
    if (accumulate == 0) std::fill(d, d + kN / 2, 0.0f);
    add_host_product<kN>(d, left, host_right<kN, kB, kMajorB>(number, b));
  });
}

}  // namespace coda::device
