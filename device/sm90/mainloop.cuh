// SPDX-License-Identifier: Apache-2.0
// The mainloop: one producer thread streams operand tiles by TMA into a ring of shared-memory
// stages, and consumer warpgroups multiply them by wgmma. It is the same for every program: a space
// only provides the descriptors of a tile (K segments one after another; a B tile in parts), and
// epilogues do not change it.
// Protocol of a stage: the producer waits until the stage is empty in every CTA that it writes to,
// announces the bytes that will arrive here (its own slice and those of its peers) and issues its
// slice. A consumer waits until the stage is full, multiplies and, when the tensor cores have read
// it, notifies every CTA that writes to it.
// Invariant: producers and consumers visit the stages in the same order, tile after tile.
#pragma once

#include "device/layout/shared_layout.cuh"
#include "device/layout/tile_order.cuh"
#include "device/layout/wgmma_descriptor.cuh"
#include "device/ptx/barrier.cuh"
#include "device/sm90/pipeline.cuh"
#include "device/sm90/ptx/tma.cuh"
#include "device/sm90/ptx/wgmma.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device {

template <GemmConfig kConfig>
struct Mainloop {
  static_assert(is_valid(kConfig));

  using State = PipelineState<kConfig.stages>;
  using Accumulators = float[kConfig.blocks_m()][kConfig.tile_n / 2];

  static constexpr u32 kConsumerWarps = kWarpgroupSize / kWarpSize;
  static constexpr u32 kConsumersOfStage =
      kConsumerWarps * (kConfig.schedule == Schedule::cooperative ? kConsumerWarpgroups : 1);

  SharedAddress stages_a;
  SharedAddress stages_b;
  SharedAddress full;
  SharedAddress empty;

  __device__ __forceinline__ void init_barriers() const {
    for (u32 stage = 0; stage < kConfig.stages; ++stage) {
      barrier_init(full + stage * kBarrierBytes, 1);
      barrier_init(empty + stage * kBarrierBytes, kConsumersOfStage * stage_writers(kConfig));
    }
  }

  // Run by one thread, for all K blocks of one tile, segment after segment.
  template <class Space, class Arguments>
  __device__ __forceinline__ void load(const Arguments& arguments, TileCoord tile, u32 rank,
                                       State& state) const {
    constexpr u32 kParts = Space::kTraits.loaded_parts();
    constexpr u32 kPartColumns = kConfig.tile_n / kParts;
    const u32 column = operand_column(Space::kTraits, tile.n);
#pragma unroll
    for (u32 segment = 0; segment < Space::kTraits.segments; ++segment) {
      const u32 k_blocks = Space::k_blocks(arguments, segment);
      for (u32 block = 0; block < k_blocks; ++block) {
        const SharedAddress full_barrier = full + state.stage * kBarrierBytes;
        barrier_wait(empty + state.stage * kBarrierBytes, state.phase ^ 1);
        barrier_arrive_expect(full_barrier, kConfig.stage_bytes());
        load_operand<kConfig.major_a(), kConfig.tile_m, kConfig.cluster_n>(
            stages_a + state.stage * kConfig.stage_bytes_a(), Space::a(arguments, segment), tile.m,
            block * kConfig.block_k(), full_barrier, rank_along_n(kConfig, rank),
            multicast_mask_a(kConfig, rank));
#pragma unroll
        for (u32 part = 0; part < kParts; ++part) {
          load_operand<kConfig.major_b(), kPartColumns, kConfig.cluster_m>(
              stages_b + state.stage * kConfig.stage_bytes_b() +
                  part * (kPartColumns * kSwizzleBytes),
              Space::b(arguments, segment, part), column, block * kConfig.block_k(), full_barrier,
              rank_along_m(kConfig, rank), multicast_mask_b(kConfig, rank));
        }
        state.advance();
      }
    }
  }

  // The number of K blocks of each tile of a space; consumers need to know nothing else about its
  // segments.
  template <class Space, class Arguments>
  __device__ __forceinline__ static u32 k_blocks(const Arguments& arguments) {
    u32 sum = 0;
#pragma unroll
    for (u32 segment = 0; segment < Space::kTraits.segments; ++segment) {
      sum += Space::k_blocks(arguments, segment);
    }
    return sum;
  }

  // Run by one warpgroup: accumulates its rows of one tile. `begun` is called kSteps times, with
  // Constant<0> to Constant<kSteps - 1>, each time after the wgmma of one of the first K blocks
  // have been issued, so that it can load meanwhile (after the last block, at once). `issued` is
  // called after the last wgmma have been issued: another warpgroup's may then queue. `scales(k)`
  // returns the OperandScales of K block k if the configuration has scales. On return the
  // accumulators are complete and all stages released.
  template <u32 kSteps, class Begun, class Issued, class Scales>
  __device__ __forceinline__ void multiply(u32 k_blocks, u32 warpgroup_row, u32 rank, State& state,
                                           Accumulators& accumulators, Begun begun, Issued issued,
                                           Scales scales) const {
    constexpr Major kMajorA = kConfig.major_a();
    constexpr Major kMajorB = kConfig.major_b();
    // Only the low half of a descriptor has the address, and no step overflows it. The shuffles
    // keep the assembler from recomputing both for each K block.
    const u32 base_a = __shfl_sync(~0u,
                                   static_cast<u32>(wgmma_descriptor(kMajorA, stages_a.byte)) +
                                       descriptor_step(kMajorA, warpgroup_row, 0),
                                   0);
    const u32 base_b =
        __shfl_sync(~0u, static_cast<u32>(wgmma_descriptor(kMajorB, stages_b.byte)), 0);
    const auto release = release_of(rank);
    // The position is equal in all lanes; the shuffle tells the assembler so, which then computes
    // descriptors in uniform registers.
    state.stage = __shfl_sync(~0u, state.stage, 0);
    state.phase = __shfl_sync(~0u, state.phase, 0);
    // The instruction for one K step of the stage and the m-th 64 rows.
    const auto multiply_add = [&](float (&sums)[kConfig.tile_n / 2], u32 m, u32 k, u32 adds) {
      const u32 a = base_a + state.stage * (kConfig.stage_bytes_a() >> 4);
      const u32 b = base_b + state.stage * (kConfig.stage_bytes_b() >> 4);
      wgmma<kConfig.tile_n, kConfig.element, kConfig.element_b, kMajorA, kMajorB>(
          sums, whole_descriptor(kMajorA, a + descriptor_step(kMajorA, m * kWgmmaM, k)),
          whole_descriptor(kMajorB, b + descriptor_step(kMajorB, 0, k)), adds);
    };
    if constexpr (kConfig.promotes) {
      // The block's code exists only once: with a separate first block, the assembler finds no
      // registers for a tile of 256 x 128 and waits for each wgmma.
#pragma unroll
      for (u32 m = 0; m < kConfig.blocks_m(); ++m) {
#pragma unroll
        for (float& sum : accumulators[m]) sum = 0.0f;
      }
      unrolled<kSteps>(begun);
      auto next = scales(0);
      for (u32 left = k_blocks; left != 0; --left) {
        const auto own = next;
        barrier_wait(full + state.stage * kBarrierBytes, state.phase);
        float sums[kConfig.tile_n / 2];
#pragma unroll
        for (u32 m = 0; m < kConfig.blocks_m(); ++m) {
          wgmma_fence();
#pragma unroll
          for (u32 k = 0; k < kBlockK; k += kWgmmaK) multiply_add(sums, m, k, k == 0 ? 0 : 1);
          wgmma_commit();
          if (m == 0 && left > 1) next = scales(k_blocks - left + 1);
          wgmma_wait<0>();  // while this warpgroup adds, the tensor cores work for the other one
          pin_registers(sums);
#pragma unroll
          for (u32 i = 0; i < kConfig.tile_n / 2; ++i) {
            if constexpr (kConfig.has_scales) {
              accumulators[m][i] = fmaf(sums[i], own.of(m, i), accumulators[m][i]);
            } else {
              accumulators[m][i] += sums[i];
            }
          }
        }
        release.stage(state.stage);
        state.advance();
      }
      issued();
    } else {
      const auto multiply_block = [&](auto first) {
        barrier_wait(full + state.stage * kBarrierBytes, state.phase);
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < kBlockK; k += kWgmmaK) {
#pragma unroll
          for (u32 m = 0; m < kConfig.blocks_m(); ++m) {
            multiply_add(accumulators[m], m, k, decltype(first)::value != 0 && k == 0 ? 0 : 1);
          }
        }
        wgmma_commit();
      };
      // A separate first block shows the assembler that it does not read the accumulators.
      // Otherwise they would be live between tiles, and an epilogue could not reuse the registers
      // of consumed accumulators.
      multiply_block(Constant<1>{});
      u32 previous = state.stage;
      state.advance();
      const auto next_block = [&] {
        multiply_block(Constant<0>{});
        // One group stays in flight, so the tensor cores never wait for this warpgroup.
        wgmma_wait<1>();
        release.stage(previous);
        previous = state.stage;
        state.advance();
      };
      u32 left = k_blocks - 1;
      unrolled<kSteps>([&](auto step) {
        begun(step);
        if (decltype(step)::value + 1 < kSteps && left != 0) {
          next_block();
          --left;
        }
      });
      for (; left != 0; --left) next_block();
      issued();
      wgmma_wait<0>();
#pragma unroll
      for (u32 m = 0; m < kConfig.blocks_m(); ++m) pin_registers(accumulators[m]);
      release.stage(previous);
    }
  }

 private:
  template <Major kMajor, u32 kTileOuter, u32 kSlices>
  __device__ __forceinline__ static void load_operand(SharedAddress stage, const TensorMap* map,
                                                      u32 outer, u32 k, SharedAddress barrier,
                                                      u32 slice, u16 mask) {
#pragma unroll
    for (u32 index = 0; index < box_count(kMajor, kTileOuter); ++index) {
      const BoxPlace box = box_place(kMajor, kTileOuter, kSlices, slice, index);
      const bool k_inner = kMajor == Major::k;
      issue<kSlices>(stage + box.offset, map, k_inner ? k + box.k : outer + box.outer,
                     k_inner ? outer + box.outer : k + box.k, barrier, mask);
    }
  }

  template <u32 kSlices>
  __device__ __forceinline__ static void issue(SharedAddress destination, const TensorMap* map,
                                               u32 inner, u32 outer, SharedAddress barrier,
                                               u16 mask) {
    if constexpr (kSlices == 1) {
      tma_load(destination, map, inner, outer, barrier);
    } else {
      tma_load_multicast(destination, map, inner, outer, barrier, mask);
    }
  }

  // The first lanes of each warp notify one writer each. Every warp arrives for itself, because
  // wgmma_wait holds only for the executing warp.
  template <class Address>
  struct Release {
    bool speaks;
    Address barriers;  // of the writer's first stage

    __device__ __forceinline__ void stage(u32 index) const {
      const Address barrier = barriers + index * kBarrierBytes;
      if (!speaks) return;
      barrier_arrive(barrier);
    }
  };
  __device__ __forceinline__ auto release_of(u32 rank) const {
    const u32 lane = threadIdx.x % kWarpSize;
    const bool speaks = lane < stage_writers(kConfig);
    if constexpr (kConfig.cluster_size() == 1) {
      return Release<SharedAddress>{speaks, empty};
    } else {
      const u32 writer = speaks ? stage_writer(kConfig, rank, lane) : rank;
      return Release<ClusterAddress>{speaks, cluster_address(empty, writer)};
    }
  }
};

}  // namespace coda::device
