// SPDX-License-Identifier: Apache-2.0
// The configuration of a GEMM kernel as a value. The mainloop, the host code that encodes
// descriptors and launches, and the tests all read this struct, so that they cannot disagree.
// Invariant: a kernel is compiled only for a configuration for which `is_valid` is true.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// The storage of the operands: TN is A[M, K] · B[N, K]ᵀ, NN is A[M, K] · B[K, N], NT is A[K, M]ᵀ ·
// B[K, N] and TT is A[K, M]ᵀ · B[N, K]ᵀ.
enum class OperandLayout { tn, nn, nt, tt };

// The dimension along which an operand is contiguous: K, or its outer dimension (M or N).
enum class Major { k, outer };

// Ping-pong: each consumer warpgroup has its own tiles, and its epilogue runs during the other's
// mainloop. Cooperative: both share a tile, which can be larger for the same registers.
enum class Schedule { ping_pong, cooperative };

inline constexpr u32 kWarpSize = 32;
inline constexpr u32 kWarpgroupSize = 128;
inline constexpr u32 kConsumerWarpgroups = 2;
inline constexpr u32 kThreads = kWarpgroupSize * (1 + kConsumerWarpgroups);

// A stage is one swizzle row of 128 bytes deep along K, and a sub-tile of an epilogue is one such
// row of 16-bit elements wide. An instruction takes 32 bytes along K. kBlockK and kWgmmaK count
// 16-bit elements; there are twice as many 8-bit elements in the same bytes, which is the only
// difference for the mainloop.
inline constexpr u32 kBlockK = 64;
inline constexpr u32 kSwizzleBytes = 128;
inline constexpr u32 kElementBytes = 2;
inline constexpr u32 kWgmmaM = 64;
inline constexpr u32 kWgmmaK = 16;

// The types that tensor cores multiply; 8-bit types only if both operands are contiguous along K.
constexpr bool is_operand(Element element) {
  return is_16_bits(element) || element == Element::e4m3 || element == Element::e5m2;
}

// The pairs of types of one instruction: equal 16-bit types, or any two 8-bit types.
constexpr bool are_operands(Element a, Element b) {
  return is_operand(a) && is_operand(b) && (a == b || bytes_of(a) + bytes_of(b) == 2);
}

struct GemmConfig {
  u32 tile_m = 128;
  u32 tile_n = 128;
  u32 cluster_m = 1;
  u32 cluster_n = 1;
  u32 stages = 4;
  Schedule schedule = Schedule::ping_pong;
  OperandLayout layout = OperandLayout::tn;
  Element element = Element::bf16;    // of A
  Element element_b = Element::bf16;  // of the same width as `element`
  // Adds the sum of each K block to the accumulators in fp32, because tensor cores keep only about
  // 14 bits of a sum of 8-bit products. Only for cooperative tiles: while one warpgroup adds, the
  // tensor cores work for the other. (Ping-pong tiles took 1.35 times as long.)
  bool promotes = false;
  // With scales, the fp32 addition also multiplies each block's sum by the scales of its rows and
  // columns (device/sm90/operand_scales.cuh).
  bool has_scales = false;
  u32 producer_registers = 40;
  u32 consumer_registers = 232;

  constexpr u32 cluster_size() const { return cluster_m * cluster_n; }

  // Rows of the tile that one consumer warpgroup accumulates.
  constexpr u32 warpgroup_m() const {
    return schedule == Schedule::cooperative ? tile_m / kConsumerWarpgroups : tile_m;
  }
  constexpr u32 blocks_m() const { return warpgroup_m() / kWgmmaM; }

  constexpr Major major_a() const {
    return layout == OperandLayout::nt || layout == OperandLayout::tt ? Major::outer : Major::k;
  }
  constexpr Major major_b() const {
    return layout == OperandLayout::tn || layout == OperandLayout::tt ? Major::k : Major::outer;
  }

  // Elements of a stage along K.
  constexpr u32 block_k() const { return kSwizzleBytes / bytes_of(element); }
  constexpr u32 stage_bytes_a() const { return tile_m * kSwizzleBytes; }
  constexpr u32 stage_bytes_b() const { return tile_n * kSwizzleBytes; }
  constexpr u32 stage_bytes() const { return stage_bytes_a() + stage_bytes_b(); }

  // Per thread.
  constexpr u32 accumulators() const { return (blocks_m() + (promotes ? 1 : 0)) * tile_n / 2; }
};

// The part of a stage that one TMA instruction loads: `k` by `outer` elements, one swizzle row wide
// along the contiguous dimension. In a cluster, the CTAs that need the same operand tile each load
// an equal slice and multicast it to the others.
struct OperandBox {
  u32 outer = 0;
  u32 k = 0;
};

constexpr OperandBox operand_box(Major major, u32 tile_outer, u32 slices, u32 block_k = kBlockK) {
  return major == Major::k ? OperandBox{.outer = tile_outer / slices, .k = block_k}
                           : OperandBox{.outer = kBlockK, .k = kBlockK / slices};
}

// An A tile is shared along the cluster's N, a B tile along its M. (box_b is in
// device/layout/space.cuh, because a B tile may consist of parts.)
constexpr OperandBox box_a(const GemmConfig& config) {
  return operand_box(config.major_a(), config.tile_m, config.cluster_n, config.block_k());
}

constexpr bool is_valid(const GemmConfig& config) {
  const bool wgmma_n =
      config.tile_n == 64 || config.tile_n == 128 || config.tile_n == 192 || config.tile_n == 256;
  const bool wgmma_m = config.warpgroup_m() % kWgmmaM == 0 && config.tile_m <= 256;
  // A slice starts at a multiple of the swizzle's period of eight rows.
  const bool slices = config.tile_m % (8 * config.cluster_n) == 0 &&
                      config.tile_n % (8 * config.cluster_m) == 0 && config.cluster_m <= 4 &&
                      config.cluster_n <= 4;
  const bool registers = config.producer_registers % 8 == 0 && config.consumer_registers % 8 == 0 &&
                         config.producer_registers + 2 * config.consumer_registers <= 512 &&
                         config.accumulators() + 32 <= config.consumer_registers;
  const bool layout = is_16_bits(config.element) || config.layout == OperandLayout::tn;
  const bool promotion =
      config.promotes ? config.schedule == Schedule::cooperative : !config.has_scales;
  return are_operands(config.element, config.element_b) && layout && promotion && wgmma_n &&
         wgmma_m && slices && registers && config.stages >= 2;
}

}  // namespace coda::device
