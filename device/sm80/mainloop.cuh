// SPDX-License-Identifier: Apache-2.0
// The mainloop of a tile: all threads copy operand blocks asynchronously into a ring of
// shared-memory stages, and each warp multiplies the blocks that have arrived with mma.sync. A
// stage is 128 bytes deep along K and consists of rows of 128 bytes, swizzled (swizzle_128b). For
// an operand that is contiguous along K, a row holds one outer index. For any other operand (of
// 16-bit elements), a row holds one k of a panel of 64 outer indices. In shared memory, kBlockK,
// kStepK and k count 16-bit elements; there are twice as many 8-bit elements in the same bytes.
// Invariant: all threads synchronise between the last read of a stage and the next copy into it.
#pragma once

#include "device/layout/tile_order.cuh"
#include "device/ptx/barrier.cuh"
#include "device/ptx/matrix_move.cuh"
#include "device/sm80/block_scales.cuh"
#include "device/sm80/config.cuh"
#include "device/sm80/ptx/async_copy.cuh"
#include "device/sm80/ptx/mma.cuh"

namespace coda::device::sm80 {

inline constexpr u32 kPieceBytes = 16;  // what a thread copies at a time

// The rectangle of a tensor that a GEMM reads as one operand. Elements outside the rectangle are
// zero.
struct StoredOperand {
  u64 address;  // of the tensor's first element
  u32 stride;   // elements between rows
  u32 rows;     // number of rows of the rectangle
  u32 columns;
  u32 first_row;  // where the rectangle begins in the tensor
  u32 first_column;

  template <u32 kBytes>  // of an element
  __device__ __forceinline__ u64 element(u32 row, u32 column) const {
    return address + (static_cast<u64>(first_row + row) * stride + first_column + column) * kBytes;
  }
  // Whether each piece of a row begins at a multiple of 16 bytes.
  template <u32 kBytes>
  __device__ __forceinline__ bool is_aligned() const {
    return (address + static_cast<u64>(first_column) * kBytes) % kPieceBytes == 0 &&
           stride % (kPieceBytes / kBytes) == 0;
  }
};

template <Config kConfig, class Space>
struct Mainloop {
  static constexpr EpilogueTraits kTraits = Space::kTraits;
  static_assert(is_valid(kConfig, kTraits));

  static constexpr u32 kBlocks = kConfig.blocks_m(kTraits);
  static constexpr u32 kFragmentsN = kConfig.group_columns(kTraits) / kFragmentColumns;
  static constexpr u32 kBytes = bytes_of(kConfig.element);
  static constexpr u32 kPiece = kPieceBytes / kBytes;  // elements
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
#pragma unroll
    for (u32 block = 0; block + 1 < kConfig.stages; ++block) load(arguments, tile, block, block);
    u32 stage = 0;
    for (u32 block = 0; block < blocks; ++block) {
      // The scales arrive while the threads wait for the stage.
      const Scales scales(arguments, tile, group_row, group_column, block);
      wait_for_copies<kConfig.stages - 2>();
      __syncthreads();
      const u32 free = stage == 0 ? kConfig.stages - 1 : stage - 1;
      load(arguments, tile, block + kConfig.stages - 1, free);
      const SharedAddress own = stages + stage * kConfig.stage_bytes();
      if constexpr (kConfig.promotes) {
        multiply_and_promote(own, group_row, group_column, scales, accumulators);
      } else {
        multiply(own, group_row, group_column, accumulators);
      }
      stage = stage + 1 == kConfig.stages ? 0 : stage + 1;
    }
    wait_for_copies<0>();
  }

 private:
  // Copies the K block with number `block`, counted over all segments. After the last block,
  // commits an empty group of copies.
  template <class Arguments>
  __device__ __forceinline__ void load(const Arguments& arguments, TileCoord tile, u32 block,
                                       u32 stage) const {
    const SharedAddress a = stages + stage * kConfig.stage_bytes();
    constexpr u32 kPartColumns = kConfig.tile_n / kTraits.loaded_parts();
    u32 index = block;
    bool is_loaded = false;
#pragma unroll
    for (u32 segment = 0; segment < kTraits.segments; ++segment) {
      const u32 own = Space::k_blocks(arguments, segment);
      if (!is_loaded && index < own) {
        is_loaded = true;
        copy<kConfig.major_a(), kConfig.tile_m>(a, Space::a(arguments, segment), tile.m,
                                                index * kConfig.block_k());
#pragma unroll
        for (u32 part = 0; part < kTraits.loaded_parts(); ++part) {
          copy<kConfig.major_b(), kPartColumns>(
              a + kConfig.stage_bytes_a() + part * (kPartColumns * kSwizzleBytes),
              Space::b(arguments, segment, part), operand_column(kTraits, tile.n),
              index * kConfig.block_k());
        }
      }
      index -= own;
    }
    commit_copies();
  }

  // Copies a block of kOuter rows or columns and 128 bytes along K that begins at `outer` and `k`.
  template <Major kMajor, u32 kOuter>
  __device__ __forceinline__ static void copy(SharedAddress to, const StoredOperand& operand,
                                              u32 outer, u32 k) {
    constexpr u32 kRowPieces = kSwizzleBytes / kPieceBytes;  // in a row of 128 bytes
    constexpr u32 kPieces = kOuter * kRowPieces;
    static_assert(kPieces % kThreads == 0 && (kMajor == Major::k || kBytes == kElementBytes));
    const bool is_aligned = operand.template is_aligned<kBytes>();
#pragma unroll 4
    for (u32 i = 0; i < kPieces / kThreads; ++i) {
      const u32 piece = i * kThreads + threadIdx.x;
      const u32 line = piece / kRowPieces;  // the row of 128 bytes
      const u32 inside = piece % kRowPieces * kPiece;
      const SharedAddress place = to + swizzle_128b(line * kSwizzleBytes + inside * kBytes);
      const u32 row = kMajor == Major::k ? outer + line : k + line % kBlockK;
      const u32 column =
          kMajor == Major::k ? k + inside : outer + line / kBlockK * kOuterPanel + inside;
      const bool exists = row < operand.rows && column < operand.columns;
      const u32 count = exists ? smaller(kPiece, operand.columns - column) : 0;
      const u64 from = exists ? operand.template element<kBytes>(row, column) : operand.address;
      if (is_aligned) {
        copy_async(place, from, count * kBytes);
      } else {
        copy_by_elements(place, from, count);
      }
    }
  }

  __device__ __forceinline__ static void copy_by_elements(SharedAddress to, u64 from, u32 count) {
    u32 words[kPieceBytes / 4] = {};
#pragma unroll
    for (u32 i = 0; i < kPiece; ++i) {
      u32 bits = 0;
      if (i < count) {
        if constexpr (kBytes == 1) {
          bits = reinterpret_cast<const u8*>(from)[i];
        } else {
          bits = reinterpret_cast<const u16*>(from)[i];
        }
      }
      words[i * kBytes / 4] |= bits << i * kBytes % 4 * 8;
    }
    store_piece(to, words);
  }

  __device__ __forceinline__ static void multiply(SharedAddress stage, u32 group_row,
                                                  u32 group_column, Accumulators& accumulators) {
    const u32 thread = threadIdx.x % kWarpgroupSize;
    const u32 lane = thread % kWarpSize;
    const u32 warp_row = group_row + thread / kWarpSize * 16;
    const SharedAddress stage_b = stage + kConfig.stage_bytes_a();
#pragma unroll
    for (u32 k = 0; k < kBlockK; k += kStepK) {
      u32 a[kBlocks][4];
#pragma unroll
      for (u32 block = 0; block < kBlocks; ++block)
        load_a(a[block], stage, lane, warp_row + block * kBlockRows, k);
#pragma unroll
      for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
        for (u32 fragment = 0; fragment < kFragmentsN; ++fragment) {
          u32 b[4];
          load_b(b, stage_b, lane,
                 accumulator_column(part, group_column + fragment * kFragmentColumns), k);
#pragma unroll
          for (u32 block = 0; block < kBlocks; ++block) {
            multiply_fragment(accumulators[block][part][fragment], a[block], b);
          }
        }
      }
    }
  }

  // As multiply(), but sums the products of the stage alone and adds the sum to the accumulators in
  // fp32, multiplied by the scales of its rows and columns if there are any.
  __device__ __forceinline__ static void multiply_and_promote(SharedAddress stage, u32 group_row,
                                                              u32 group_column,
                                                              const Scales& scales,
                                                              Accumulators& accumulators) {
    const u32 thread = threadIdx.x % kWarpgroupSize;
    const u32 lane = thread % kWarpSize;
    const u32 warp_row = group_row + thread / kWarpSize * 16;
    const SharedAddress stage_b = stage + kConfig.stage_bytes_a();
    constexpr u32 kSteps = kBlockK / kStepK;
    u32 a[kBlocks][kSteps][4];
#pragma unroll
    for (u32 block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (u32 step = 0; step < kSteps; ++step)
        load_a(a[block][step], stage, lane, warp_row + block * kBlockRows, step * kStepK);
    }
#pragma unroll
    for (u32 part = 0; part < kTraits.parts; ++part) {
#pragma unroll
      for (u32 fragment = 0; fragment < kFragmentsN; ++fragment) {
        float sums[kBlocks][2][4] = {};
#pragma unroll
        for (u32 step = 0; step < kSteps; ++step) {
          u32 b[4];
          load_b(b, stage_b, lane,
                 accumulator_column(part, group_column + fragment * kFragmentColumns),
                 step * kStepK);
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

  // The column in the tile of B: parts follow one another, or members are in natural order.
  __device__ __forceinline__ static u32 accumulator_column(u32 part, u32 base_column) {
    if constexpr (kTraits.natural_half != 0) {
      return wide_column(kTraits.natural_half, part, base_column);
    } else {
      return part * kConfig.base_columns(kTraits) + base_column;
    }
  }

  // Loads 16 rows of A from `row`, 16 deep along K. Lane l supplies the address of a row of matrix
  // l / 8. The matrices are: the upper eight rows, the lower eight rows, then both again for the
  // next eight k.
  __device__ __forceinline__ static void load_a(u32 (&a)[4], SharedAddress stage, u32 lane, u32 row,
                                                u32 k) {
    if constexpr (kConfig.major_a() == Major::k) {
      load_matrices(a, stage + place<Major::k>(row + lane % 16, k + lane / 16 * 8));
    } else {
      load_matrices_transposed(
          a, stage + place<Major::outer>(row + lane / 8 % 2 * 8, k + lane % 8 + lane / 16 * 8));
    }
  }
  // Loads 16 columns of B from `column`. The matrices are: the first eight columns with the first
  // and the second eight k, then the next eight columns with both.
  __device__ __forceinline__ static void load_b(u32 (&b)[4], SharedAddress stage, u32 lane,
                                                u32 column, u32 k) {
    if constexpr (kConfig.major_b() == Major::k) {
      load_matrices(
          b, stage + place<Major::k>(column + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * 8));
    } else {
      load_matrices_transposed(
          b, stage + place<Major::outer>(column + lane / 16 * 8, k + lane % 8 + lane / 8 % 2 * 8));
    }
  }

  // The offset of an element in its operand's part of a stage.
  template <Major kMajor>
  __device__ __forceinline__ static u32 place(u32 outer, u32 k) {
    return kMajor == Major::k
               ? swizzle_128b(outer * kSwizzleBytes + k * kElementBytes)
               : outer / kOuterPanel * kOuterPanelBytes +
                     swizzle_128b(k * kSwizzleBytes + outer % kOuterPanel * kElementBytes);
  }
};

}  // namespace coda::device::sm80
