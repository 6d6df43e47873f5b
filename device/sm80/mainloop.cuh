// SPDX-License-Identifier: Apache-2.0
// The mainloop of a tile. All threads copy blocks of both operands asynchronously into a ring of
// shared-memory stages (operand_copy.cuh). Each warp multiplies the blocks that have arrived with
// mma.sync.
//
// The loop is software-pipelined, so that the tensor cores never wait. A block has four steps along
// K. While a warp multiplies the fragments of one step, it loads the fragments of the next step
// with ldmatrix. The step after the last step of a block is the first step of the next block. Each
// step also prefetches a part of the block that is `stages - 1` blocks later. The compiler
// schedules instructions only within a basic block, so the loop body must not branch. A copy with
// bounds checks would branch. So the loop prefetches only whole blocks (operand_copy.cuh defines
// the term). Branching code before the four steps copies all other blocks: the last block if K ends
// inside the block, and every block of an unaligned operand.
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
    u32 blocks = 0;
#pragma unroll
    for (u32 segment = 0; segment < kTraits.segments; ++segment)
      blocks += Space::k_blocks(arguments, segment);
    Copies<Arguments> copies(arguments, tile);
#pragma unroll
    for (u32 block = 0; block + 1 < kConfig.stages; ++block)
      copies.copy_next(stages + block * kConfig.stage_bytes());
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
        copies.copy_next(free);
        multiply_and_promote(stage, lane, scales, accumulators);
        advance();
      }
    } else {
      Fragments fragments[2];  // of this step and the next, in turns
      const auto multiply_block = [&](auto is_whole) {
        constexpr bool kCopies = decltype(is_whole)::value != 0;
        unrolled<kSteps>([&](auto index) {
          constexpr u32 kStep = decltype(index)::value;
          if constexpr (kStep + 1 == kSteps) {
            // The block's last fragments are loaded, so its stage is free for copies.
            if constexpr (kCopies) copies.commit_whole();
            wait_for_stage();
            advance();
          }
          load_fragments(fragments[(kStep + 1) % 2], stage, lane, (kStep + 1) % kSteps);
          if constexpr (kCopies && kStep < kCopyingSteps)
            copies.template copy_whole<kStep, kCopyingSteps>(free);
          multiply(fragments[kStep % 2], accumulators);
        });
      };
      wait_for_stage();
      load_fragments(fragments[0], stage, lane, 0);
      // Unrolled by the assembler, as for compute capability 12.0, these loops spill registers.
#pragma unroll 1
      for (u32 block = 0; block < blocks; ++block) {
        const u32 whole = copies.whole_blocks();
#pragma unroll 1
        for (u32 i = 0; i < whole; ++i) multiply_block(Constant<1>{});
        copies.next += whole;
        block += whole;
        copies.copy_partial(free);
        multiply_block(Constant<0>{});
      }
    }
    wait_for_copies<0>();
  }

 private:
  static constexpr u32 kParts = kTraits.loaded_parts();
  static constexpr u32 kPartColumns = kConfig.tile_n / kParts;
  using CopyOfA = OperandCopy<kConfig.major_a(), kConfig.tile_m, kBytes>;
  using CopyOfB = OperandCopy<kConfig.major_b(), kPartColumns, kBytes>;
  static constexpr u32 kPieces = CopyOfA::kPieces + kParts * CopyOfB::kPieces;
  // The number of steps of a block that issue copies. With two stages, the last step of a block
  // already waits for the copies of this block, so the first step issues all of them.
  static constexpr u32 kCopyingSteps = kConfig.stages == 2 ? 1 : kSteps - 1;

  // The state of a thread's copies. Blocks are copied in order through all segments of K.
  template <class Arguments>
  struct Copies {
    const Arguments& arguments;
    TileCoord tile;
    CopyOfA a;
    CopyOfB b[kParts];
    u32 current;  // segment
    u32 next;     // block of the segment

    __device__ __forceinline__ Copies(const Arguments& arguments, TileCoord tile)
        : arguments(arguments), tile(tile) {
      begin(0);
    }
    __device__ __forceinline__ void begin(u32 segment) {
      current = segment;
      next = 0;
      a = CopyOfA(Space::a(arguments, segment), tile.m);
#pragma unroll
      for (u32 part = 0; part < kParts; ++part)
        b[part] = CopyOfB(Space::b(arguments, segment, part), first_column());
    }
    // The number of consecutive whole blocks of the current segment, counted from `next`.
    __device__ __forceinline__ u32 whole_blocks() const {
      u32 whole = CopyOfA::whole_blocks(Space::a(arguments, segment()), tile.m);
#pragma unroll
      for (u32 part = 0; part < kParts; ++part)
        whole = smaller(
            whole, CopyOfB::whole_blocks(Space::b(arguments, segment(), part), first_column()));
      return whole > next ? whole - next : 0;
    }
    // Issues part kStep of kOf of the copies of a whole block. `stage`: address of the stage.
    template <u32 kStep, u32 kOf>
    __device__ __forceinline__ void copy_whole(SharedAddress stage) const {
      constexpr u32 kFirst = kStep * kPieces / kOf;
      unrolled<(kStep + 1) * kPieces / kOf - kFirst>([&](auto index) {
        constexpr u32 kPiece = kFirst + decltype(index)::value;
        if constexpr (kPiece < CopyOfA::kPieces) {
          a.copy_whole(kPiece, stage);
        } else {
          constexpr u32 kPart = (kPiece - CopyOfA::kPieces) / CopyOfB::kPieces;
          b[kPart].copy_whole((kPiece - CopyOfA::kPieces) % CopyOfB::kPieces,
                              stage + offset_of_b(kPart));
        }
      });
    }
    // Commits the copies of a whole block. The caller must increment `next`.
    __device__ __forceinline__ void commit_whole() {
      commit_copies();
      advance();
    }
    // Copies block `next` if there is one. Uses the branch-free copies if the block is whole.
    __device__ __forceinline__ void copy_next(SharedAddress stage) {
      if (whole_blocks() == 0) return copy_partial(stage);
      copy_whole<0, 1>(stage);
      commit_whole();
      ++next;
    }
    // Copies block `next` with bounds checks, whether it is whole or not. If the current segment
    // has no more blocks, it begins the next segment.
    __device__ __forceinline__ void copy_partial(SharedAddress stage) {
#pragma unroll
      for (u32 following = 1; following < kTraits.segments; ++following) {
        if (current == following - 1 && next == Space::k_blocks(arguments, following - 1))
          begin(following);
      }
      if (next < Space::k_blocks(arguments, segment())) {
        CopyOfA::copy_block(Space::a(arguments, segment()), tile.m, next, stage);
#pragma unroll
        for (u32 part = 0; part < kParts; ++part)
          CopyOfB::copy_block(Space::b(arguments, segment(), part), first_column(), next,
                              stage + offset_of_b(part));
        advance();
        ++next;
      }
      commit_copies();
    }

   private:
    __device__ __forceinline__ void advance() {
      a.advance();
#pragma unroll
      for (u32 part = 0; part < kParts; ++part) b[part].advance();
    }
    __device__ __forceinline__ u32 segment() const { return kTraits.segments == 1 ? 0 : current; }
    __device__ __forceinline__ u32 first_column() const { return operand_column(kTraits, tile.n); }
    static constexpr u32 offset_of_b(u32 part) {
      return kConfig.stage_bytes_a() + part * (kPartColumns * kSwizzleBytes);
    }
  };

  // A thread's fragments of both operands for one step: each has 16 rows of A or 16 columns of B.
  struct Fragments {
    u32 a[kBlocks][4];
    u32 b[kTraits.parts][kFragmentsN][4];
  };

  // Byte offsets in a stage: the addresses that this lane passes to ldmatrix for the first fragment
  // of A and of B.
  struct Lane {
    u32 a;
    u32 b;
  };

  // Waits for two things: the next block has arrived in its stage, and all threads have finished
  // reading the stages of earlier blocks.
  __device__ __forceinline__ static void wait_for_stage() {
    wait_for_copies<kConfig.stages - 2>();
    __syncthreads();
  }

  // If two consecutive mma.sync read the same register, the tensor core reuses it without another
  // register read, which saves power. So all products with one fragment of A are issued one after
  // another, and the order of B's fragments is reversed for every second fragment of A.
  __device__ __forceinline__ static void multiply(const Fragments& step,
                                                  Accumulators& accumulators) {
    constexpr u32 kColumns = kTraits.parts * kFragmentsN;
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (u32 i = 0; i < kColumns; ++i) {
        const u32 column = block % 2 == 0 ? i : kColumns - 1 - i;
        multiply_fragment(accumulators[block][column / kFragmentsN][column % kFragmentsN],
                          step.a[block], step.b[column / kFragmentsN][column % kFragmentsN]);
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
