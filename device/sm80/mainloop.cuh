// SPDX-License-Identifier: Apache-2.0
// The mainloop of a tile: all threads copy operand blocks asynchronously into a ring of
// shared-memory stages (operand_copy.cuh), and each warp multiplies the blocks that have arrived
// with mma.sync.
//
// A block has four steps along K. While a warp multiplies the fragments of one step, it loads those
// of the next, also across the border of two blocks, and issues part of the copies of the block
// that is `stages - 1` ahead. So the tensor cores wait neither for shared memory nor for the
// barrier. All of this is one basic block, because the compiler schedules only within one:
// operands whose rows do not begin at multiples of 16 bytes have a loop of their own.
// In shared memory, kBlockK, kStepK and k count 16-bit elements; there are twice as many 8-bit
// elements in the same bytes.
// Invariant: all threads synchronise between the last read of a stage and the next copy into it.
#pragma once

#include "device/layout/tile_order.cuh"
#include "device/ptx/barrier.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/sm80/block_scales.cuh"
#include "device/sm80/operand_copy.cuh"
#include "device/sm80/ptx/mma.cuh"
#include "device/values/unrolled.cuh"

namespace coda::device::sm80 {

template <Config kConfig, class Space>
struct Mainloop {
  static constexpr EpilogueTraits kTraits = Space::kTraits;
  static_assert(is_valid(kConfig, kTraits));

  static constexpr u32 kBlocks = kConfig.blocks_m(kTraits);
  static constexpr u32 kFragmentsN = kConfig.group_columns(kTraits) / kFragmentColumns;
  static constexpr u32 kBytes = bytes_of(kConfig.element);
  static constexpr u32 kSteps = kBlockK / kStepK;  // of a block
  // The accumulators of one thread. A fragment of 16 base columns has eight values, in the order in
  // which an epilogue reads them.
  using Accumulators = float[kBlocks][kTraits.parts][kFragmentsN][2][4];
  using Scales = BlockScales<kConfig, Space, kConfig.has_scales>;

  SharedAddress stages;

  // Called by all threads. `group_row`, `group_column`: the first row and the first base column of
  // the thread's group in the tile. On return the accumulators are complete, but other warps may
  // still read the stages.
  template <class Arguments>
  __device__ __forceinline__ void run(const Arguments& arguments, TileCoord tile, u32 group_row,
                                      u32 group_column, Accumulators& accumulators) const {
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
        for (u32 fragment = 0; fragment < kFragmentsN; ++fragment) {
#pragma unroll
          for (u32 i = 0; i < 8; ++i) accumulators[block][part][fragment][i / 4][i % 4] = 0.0f;
        }
      }
    }
    if (are_aligned(arguments)) {
      run<true>(arguments, tile, group_row, group_column, accumulators);
    } else {
      run<false>(arguments, tile, group_row, group_column, accumulators);
    }
  }

 private:
  static constexpr u32 kParts = kTraits.loaded_parts();
  static constexpr u32 kPartColumns = kConfig.tile_n / kParts;
  using CopyOfA = OperandCopy<kConfig.major_a(), kConfig.tile_m, kBytes>;
  using CopyOfB = OperandCopy<kConfig.major_b(), kPartColumns, kBytes>;
  static constexpr u32 kPieces = CopyOfA::kPieces + kParts * CopyOfB::kPieces;
  // The steps of a block that copy. The block after the next must have time to arrive.
  static constexpr u32 kCopyingSteps = kConfig.stages == 2 || kConfig.promotes ? 1 : kSteps - 1;

  template <class Arguments>
  __device__ __forceinline__ static bool are_aligned(const Arguments& arguments) {
    bool all = true;
#pragma unroll
    for (u32 segment = 0; segment < kTraits.segments; ++segment) {
      all = all && Space::a(arguments, segment).template is_aligned<kBytes>();
#pragma unroll
      for (u32 part = 0; part < kParts; ++part)
        all = all && Space::b(arguments, segment, part).template is_aligned<kBytes>();
    }
    return all;
  }

  // The copies of a thread, block after block through all segments of K. After the last block they
  // fill stages with zeros.
  template <class Arguments>
  struct Copies {
    const Arguments& arguments;
    TileCoord tile;
    CopyOfA a;
    CopyOfB b[kParts];
    u32 segment;
    u32 left;  // blocks of the segment

    __device__ __forceinline__ Copies(const Arguments& arguments, TileCoord tile)
        : arguments(arguments), tile(tile) {
      begin(0);
    }
    __device__ __forceinline__ void begin(u32 next) {
      segment = next;
      left = Space::k_blocks(arguments, next);
      a = CopyOfA(Space::a(arguments, next), tile.m);
#pragma unroll
      for (u32 part = 0; part < kParts; ++part)
        b[part] = CopyOfB(Space::b(arguments, next, part), operand_column(kTraits, tile.n));
    }
    // Called before the copies of a block.
    __device__ __forceinline__ void enter_segment() {
#pragma unroll
      for (u32 next = 1; next < kTraits.segments; ++next) {
        if (left == 0 && segment == next - 1) begin(next);
      }
    }
    // Copies the pieces of step kStep of kOf.
    template <bool kAligned, u32 kStep, u32 kOf>
    __device__ __forceinline__ void copy(SharedAddress stage) const {
      constexpr u32 kFirst = kStep * kPieces / kOf;
      unrolled<(kStep + 1) * kPieces / kOf - kFirst>([&](auto index) {
        constexpr u32 kPiece = kFirst + decltype(index)::value;
        if constexpr (kPiece < CopyOfA::kPieces) {
          a.template copy<kAligned>(kPiece, stage);
        } else {
          constexpr u32 kPart = (kPiece - CopyOfA::kPieces) / CopyOfB::kPieces;
          b[kPart].template copy<kAligned>(
              (kPiece - CopyOfA::kPieces) % CopyOfB::kPieces,
              stage + (kConfig.stage_bytes_a() + kPart * (kPartColumns * kSwizzleBytes)));
        }
      });
    }
    // Called after the copies of a block.
    __device__ __forceinline__ void commit() {
      commit_copies();
      a.advance();
#pragma unroll
      for (u32 part = 0; part < kParts; ++part) b[part].advance();
      if constexpr (kTraits.segments > 1) --left;
    }
    template <bool kAligned>
    __device__ __forceinline__ void copy_block(SharedAddress stage) {
      enter_segment();
      copy<kAligned, 0, 1>(stage);
      commit();
    }
  };

  // What a thread loads of one step: 16 rows and 16 columns for each fragment.
  struct Fragments {
    u32 a[kBlocks][4];
    u32 b[kTraits.parts][kFragmentsN][4];
  };

  // The places in a stage from which a lane loads its first fragments of both operands.
  struct Lane {
    u32 a;
    u32 b;
  };

  template <bool kAligned, class Arguments>
  __device__ __forceinline__ void run(const Arguments& arguments, TileCoord tile, u32 group_row,
                                      u32 group_column, Accumulators& accumulators) const {
    u32 blocks = 0;
#pragma unroll
    for (u32 segment = 0; segment < kTraits.segments; ++segment)
      blocks += Space::k_blocks(arguments, segment);
    Copies<Arguments> copies(arguments, tile);
#pragma unroll
    for (u32 block = 0; block + 1 < kConfig.stages; ++block)
      copies.template copy_block<kAligned>(stages + block * kConfig.stage_bytes());
    const Lane lane = lane_of(group_row, group_column);
    SharedAddress stage = stages;
    SharedAddress free = stages + (kConfig.stages - 1) * kConfig.stage_bytes();
    const auto advance = [&] {
      free = stage;
      const bool is_last = stage == stages + (kConfig.stages - 1) * kConfig.stage_bytes();
      stage = is_last ? stages : stage + kConfig.stage_bytes();
    };
    if constexpr (kConfig.promotes) {
      for (u32 block = 0; block < blocks; ++block) {
        // The scales arrive while the threads wait for the stage.
        const Scales scales(arguments, tile, group_row, group_column, block);
        wait_for_stage();
        copies.template copy_block<kAligned>(free);
        multiply_and_promote(stage, lane, scales, accumulators);
        advance();
      }
    } else {
      Fragments fragments[2];  // of this step and the next, in turns
      wait_for_stage();
      load_fragments(fragments[0], stage, lane, 0);
      for (u32 block = 0; block < blocks; ++block) {
        copies.enter_segment();
        unrolled<kSteps>([&](auto index) {
          constexpr u32 kStep = decltype(index)::value;
          if constexpr (kStep + 1 == kSteps) {
            // The block's last fragments are loaded, so its stage is free for copies.
            copies.commit();
            wait_for_stage();
            advance();
          }
          load_fragments(fragments[(kStep + 1) % 2], stage, lane, (kStep + 1) % kSteps);
          if constexpr (kStep < kCopyingSteps)
            copies.template copy<kAligned, kStep, kCopyingSteps>(free);
          multiply(fragments[kStep % 2], accumulators);
        });
      }
    }
    wait_for_copies<0>();
  }

  // Waits until all copies of the oldest block have arrived and no thread reads older stages.
  __device__ __forceinline__ static void wait_for_stage() {
    wait_for_copies<kConfig.stages - 2>();
    __syncthreads();
  }

  __device__ __forceinline__ static void multiply(const Fragments& step,
                                                  Accumulators& accumulators) {
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 fragment = 0; fragment < kFragmentsN; ++fragment) {
#pragma unroll
        for (u32 block = 0; block < kBlocks; ++block)
          multiply_fragment(accumulators[block][part][fragment], step.a[block],
                            step.b[part][fragment]);
      }
    }
  }

  // As multiply() for all steps of a block, but sums the products of the block alone and adds the
  // sum to the accumulators in fp32, multiplied by the scales of its rows and columns if there are
  // any.
  __device__ __forceinline__ static void multiply_and_promote(SharedAddress stage, Lane lane,
                                                              const Scales& scales,
                                                              Accumulators& accumulators) {
    u32 a[kBlocks][kSteps][4];
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (u32 step = 0; step < kSteps; ++step) load_a(a[block][step], stage, lane, block, step);
    }
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 fragment = 0; fragment < kFragmentsN; ++fragment) {
        float sums[kBlocks][2][4] = {};
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
          u32 b[4];
          load_b(b, stage, lane, part, fragment, step);
#pragma unroll
          for (u32 block = 0; block < kBlocks; ++block)
            multiply_fragment(sums[block], a[block][step], b);
        }
#pragma unroll
        for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (u32 i = 0; i < kFragmentElements; ++i) {
            float& own = accumulators[block][part][fragment][i / 4][i % 4];
            const float sum = sums[block][i / 4][i % 4];
            if constexpr (kConfig.has_scales) {
              own = fmaf(sum, scales.of(block, part, fragment, i), own);
            } else {
              own += sum;
            }
          }
        }
      }
    }
  }

  __device__ __forceinline__ static void multiply_fragment(float (&d)[2][4], const u32 (&a)[4],
                                                           const u32 (&b)[4]) {
    multiply_add<kConfig.element, kConfig.element_b>(d[0], a, b[0], b[1]);
    multiply_add<kConfig.element, kConfig.element_b>(d[1], a, b[2], b[3]);
  }

  // ldmatrix loads four 8x8 matrices; lane l supplies the address of a row of matrix l / 8. Of A,
  // these are the upper eight rows, the lower eight rows, then both again for the next eight k. Of
  // B: the first eight columns with the first and the second eight k, then the next eight columns
  // with both. For an operand that is not contiguous along K, a row in memory is one k.
  __device__ __forceinline__ static Lane lane_of(u32 group_row, u32 group_column) {
    const u32 lane = threadIdx.x % kWarpSize;
    const u32 warp_row = group_row + threadIdx.x % kWarpgroupSize / kWarpSize * 16;
    u32 column = group_column;
    if constexpr (kTraits.natural_half != 0)
      column = wide_column(kTraits.natural_half, 0, group_column);
    return {.a = place<kConfig.major_a()>(warp_row, lane, lane / 8 % 2, lane / 16),
            .b = kConfig.stage_bytes_a() +
                 place<kConfig.major_b()>(column, lane, lane / 16, lane / 8 % 2)};
  }
  template <Major kMajor>
  __device__ __forceinline__ static u32 place(u32 outer, u32 lane, u32 outer_half, u32 k_half) {
    return kMajor == Major::k ? stage_offset<kMajor>(outer + outer_half * 8 + lane % 8, k_half * 8)
                              : stage_offset<kMajor>(outer + outer_half * 8, k_half * 8 + lane % 8);
  }

  // The fragment `outer` rows or columns (a multiple of 16; of 64, if `first` is not at a multiple
  // of 64) and `step` steps of K from the fragment at `first`. Swizzled rows repeat after eight, so
  // steps inside a row are an exclusive or, and all others are sums.
  template <Major kMajor>
  __device__ __forceinline__ static void load(u32 (&fragment)[4], SharedAddress first, u32 outer,
                                              u32 step) {
    if constexpr (kMajor == Major::k) {
      load_matrices(fragment, (first ^ (step * kStepK * kElementBytes)) + outer * kSwizzleBytes);
    } else {
      load_matrices_transposed(
          fragment, (first ^ (outer % kOuterPanel * kElementBytes)) +
                        (outer / kOuterPanel * kOuterPanelBytes + step * kStepK * kSwizzleBytes));
    }
  }
  __device__ __forceinline__ static void load_a(u32 (&a)[4], SharedAddress stage, Lane lane,
                                                u32 block, u32 step) {
    load<kConfig.major_a()>(a, stage + lane.a, block * kBlockRows, step);
  }
  // Columns in the tile of B: parts follow one another, or members are in natural order. A group's
  // columns begin at a multiple of the natural half, or lie within one.
  __device__ __forceinline__ static void load_b(u32 (&b)[4], SharedAddress stage, Lane lane,
                                                u32 part, u32 fragment, u32 step) {
    const u32 base = fragment * kFragmentColumns;
    u32 column = part * kConfig.base_columns(kTraits) + base;
    if constexpr (kTraits.natural_half != 0) column = wide_column(kTraits.natural_half, part, base);
    load<kConfig.major_b()>(b, stage + lane.b, column, step);
  }
  __device__ __forceinline__ static void load_fragments(Fragments& to, SharedAddress stage,
                                                        Lane lane, u32 step) {
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) load_a(to.a[block], stage, lane, block, step);
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 fragment = 0; fragment < kFragmentsN; ++fragment)
        load_b(to.b[part][fragment], stage, lane, part, fragment, step);
    }
  }
};

}  // namespace coda::device::sm80
