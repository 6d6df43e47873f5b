// SPDX-License-Identifier: Apache-2.0
// Building blocks of kernels over vectors: the assignment of threads to lines (elements of a
// vector), combining the partials of a line, and the sum of a vector. A line has one thread, or
// neighbouring lanes of a warp (row partials, which are adjacent in memory), or all slots of a
// block (column partials, which are below each other). Four neighbours in memory belong to one
// thread, as one 16-byte access if possible.
// Invariant: which partials a thread reduces, and the order of merging, depend only on the numbers
// of partials and threads, so results are bitwise repeatable.
#pragma once

#include "device/arguments.cuh"
#include "device/ptx/dependent_launch.cuh"
#include "device/tiles/vector_access.cuh"
#include "device/values/philox.cuh"
#include "device/values/precise_math.cuh"
#include "device/values/reductions.cuh"

namespace coda::device {

inline constexpr u32 kFinalizerThreads = 512;  // the most of one of many blocks
inline constexpr u32 kSingleThreads = 1024;    // of a single block
inline constexpr u32 kLineBatch = 8;           // lines in flight per thread of a single block
inline constexpr u32 kSlotLines = 32;          // lines of a block with slots
inline constexpr u32 kQuad = 4;                // neighbours in memory of one thread
inline constexpr u32 kFinalizerScratch =
    fields_of(Reduction::mean_m2) * (kSingleThreads / 32) * kSlotLines;  // floats

struct LinePlace {
  u32 line = 0;
  u32 member = 0;   // among the threads of the line
  u32 members = 1;  // a power of two
  bool exists = false;

  // Whether this thread reads and writes vectors for the line.
  constexpr bool is_first() const { return exists && member == 0; }
};

// `members` lanes per line; `first` is the block's first line.
constexpr LinePlace place_in_lanes(u32 thread, u32 first, u32 lines, u32 members) {
  const u32 line = first + thread / members;
  return {.line = line, .member = thread % members, .members = members, .exists = line < lines};
}
// Each warp has all lines, one per lane.
constexpr LinePlace place_in_slots(u32 thread, u32 threads, u32 first, u32 lines) {
  const u32 line = first + thread % kSlotLines;
  return {.line = line,
          .member = thread / kSlotLines,
          .members = threads / kSlotLines,
          .exists = line < lines};
}

// The partials of a line in memory: adjacent in a row partial, [lanes][lines][count], or below each
// other in a column partial, [lanes][count][lines].
struct Partials {
  u64 tensor = 0;
  u32 pitch = 0;  // elements between rows in memory
  u32 lines = 0;
  u32 count = 0;    // partials per line
  u32 reduced = 0;  // values per line, 64 per partial
};

template <bool kAlongRows>
constexpr u64 partial_index(const Partials& of, u32 lane, u32 line, u32 partial) {
  const u64 row = kAlongRows ? static_cast<u64>(lane) * of.lines + line
                             : static_cast<u64>(lane) * of.count + partial;
  return row * of.pitch + (kAlongRows ? partial : line);
}

// Whether four neighbours are 16 bytes, all of which exist or none.
template <bool kAlongRows>
constexpr bool has_whole_quads(const Partials& of) {
  return of.tensor % 16 == 0 && (of.pitch | (kAlongRows ? of.count : of.lines)) % kQuad == 0;
}

// Four neighbours from element `index` on; the first `valid` exist, the others are 0.
template <bool kVector>
__device__ __forceinline__ void load_quad(float (&x)[kQuad], u64 tensor, u64 index, u32 valid) {
  if constexpr (kVector) {
    u32 word[kQuad] = {0, 0, 0, 0};
    if (valid != 0) load_piece<Access::streamed>(word, tensor + index * 4);
#pragma unroll
    for (u32 i = 0; i < kQuad; ++i) x[i] = word_value<Element::f32>(word[i]);
  } else {
#pragma unroll
    for (u32 i = 0; i < kQuad; ++i) {
      x[i] = i < valid ? load_element<Element::f32>(tensor, index + i) : 0.0f;
    }
  }
}

// Adds a batch of partials; the first `end` belong to the line. Element i is partial partial_of(i),
// with lanes lane(0, i), lane(1, i), ...
template <Reduction kKind, u32 kCount, class PartialOf, class Lane>
__device__ __forceinline__ void add_batch(Reduced<kKind>& total, const Partials& of, u32 end,
                                          const PartialOf& partial_of, const Lane& lane) {
  if constexpr (has_exponentials(kKind)) {
    // One exponential per partial, and one to rescale the sum so far.
    float largest = total.field[0];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      if (partial_of(i) < end) largest = maximum(largest, lane(0, i));
    }
    const float before = weight_below(total.field[0], largest);
    float sum = total.field[1] * before;
    float shifted = 0.0f;
    if constexpr (kKind == Reduction::entropy)
      shifted = shifted_below(total.field[0], total.field[1], total.field[2], largest, before);
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const float weight = weight_below(lane(0, i), largest);
      const float weighed = lane(1, i) * weight;
      if (partial_of(i) < end) sum += weighed;
      if constexpr (kKind == Reduction::entropy) {
        const float moved = shifted_below(lane(0, i), lane(1, i), lane(2, i), largest, weight);
        if (partial_of(i) < end) shifted += moved;
      }
    }
    total.field[0] = largest;
    total.field[1] = sum;
    if constexpr (kKind == Reduction::entropy) total.field[2] = shifted;
  } else {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 partial = partial_of(i);
      if (partial < end) {
        const u32 count = smaller(kPartialSpan, of.reduced - partial * kPartialSpan);
        total = merge(total, Reduced<kKind>(lane(0, i), lane(lanes_of(kKind) - 1, i),
                                            static_cast<float>(count)));
      }
    }
  }
}

// A thread's share: the partial quads member, member + members, ..., in ascending order. The
// partials of a column partial are not adjacent in memory.
template <Reduction kKind, bool kAlongRows, bool kVector>
__device__ __forceinline__ Reduced<kKind> reduce_share(const Partials& of, const LinePlace& at) {
  constexpr u32 kBatch = 4;  // quads in flight per lane
  Reduced<kKind> total;
  const u32 end = at.exists ? of.count : 0;
  const u32 step = kQuad * at.members;
#pragma unroll 1
  for (u32 first = kQuad * at.member; first < end; first += kBatch * step) {
    float lane[lanes_of(kKind)][kBatch][kQuad];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const u32 partial = first + i * step;
      const u32 valid = partial < end ? smaller(kQuad, end - partial) : 0;
#pragma unroll
      for (u32 l = 0; l < lanes_of(kKind); ++l) {
        if constexpr (kAlongRows) {
          load_quad<kVector>(lane[l][i], of.tensor, partial_index<true>(of, l, at.line, partial),
                             valid);
        } else {
#pragma unroll
          for (u32 j = 0; j < kQuad; ++j) {
            const u64 index = partial_index<false>(of, l, at.line, partial + j);
            lane[l][i][j] = j < valid ? load_element<Element::f32>(of.tensor, index) : 0.0f;
          }
        }
      }
    }
    add_batch<kKind, kBatch * kQuad>(
        total, of, end, [&](u32 i) { return first + i / kQuad * step + i % kQuad; },
        [&](u32 l, u32 i) { return lane[l][i / kQuad][i % kQuad]; });
  }
  return total;
}

// The reduction of the whole line, in each of its lanes.
template <Reduction kKind, bool kAlongRows>
__device__ __forceinline__ Reduced<kKind> combine_in_lanes(const Partials& of,
                                                           const LinePlace& at) {
  Reduced<kKind> total = kAlongRows && has_whole_quads<true>(of)
                             ? reduce_share<kKind, kAlongRows, kAlongRows>(of, at)
                             : reduce_share<kKind, kAlongRows, false>(of, at);
  for (u32 mask = 1; mask < at.members; mask *= 2) total = merge_lanes(total, mask);
  return total;
}

// Four lines of a block with slots.
template <Reduction kKind>
struct SlotLines {
  Reduced<kKind> line[kQuad];
};

// The share of a thread that has the four lines from `line` on: column partials slot, slot + slots,
// ..., in ascending order.
template <Reduction kKind, bool kVector>
__device__ __forceinline__ SlotLines<kKind> reduce_slot(const Partials& of, u32 line, u32 slot,
                                                        u32 slots) {
  constexpr u32 kBatch = 8 / lanes_of(kKind);  // rows in flight
  SlotLines<kKind> total;
  const u32 valid = line < of.lines ? smaller(kQuad, of.lines - line) : 0;
  const u32 end = valid != 0 ? of.count : 0;
#pragma unroll 1
  for (u32 first = slot; first < end; first += kBatch * slots) {
    float lane[lanes_of(kKind)][kBatch][kQuad];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const u32 partial = first + i * slots;
#pragma unroll
      for (u32 l = 0; l < lanes_of(kKind); ++l) {
        load_quad<kVector>(lane[l][i], of.tensor, partial_index<false>(of, l, line, partial),
                           partial < end ? valid : 0);
      }
    }
#pragma unroll
    for (u32 j = 0; j < kQuad; ++j) {
      add_batch<kKind, kBatch>(
          total.line[j], of, end, [&](u32 i) { return first + i * slots; },
          [&](u32 l, u32 i) { return lane[l][i][j]; });
    }
  }
  return total;
}

// The reduction of the line at.line, in all its threads. Eight neighbouring threads cover the
// block's lines, and each warp has four slots: first the slots of a warp are merged, then warp by
// warp.
template <Reduction kKind>
__device__ __forceinline__ Reduced<kKind> combine_in_slots(const Partials& of, const LinePlace& at,
                                                           float* scratch) {
  constexpr u32 kSlotThreads = kSlotLines / kQuad;
  const u32 thread = thread_index();
  const u32 quad = thread % kSlotThreads * kQuad;
  const u32 line = at.line - thread % kSlotLines + quad;
  const u32 slot = thread / kSlotThreads;
  const u32 slots = block_threads() / kSlotThreads;
  SlotLines<kKind> total = has_whole_quads<false>(of)
                               ? reduce_slot<kKind, true>(of, line, slot, slots)
                               : reduce_slot<kKind, false>(of, line, slot, slots);
  const u32 warps = block_threads() / 32;
  const u32 warp = thread / 32;
#pragma unroll
  for (u32 j = 0; j < kQuad; ++j) {
#pragma unroll
    for (u32 mask = kSlotThreads; mask < 32; mask *= 2) {
      total.line[j] = merge_lanes(total.line[j], mask);
    }
#pragma unroll
    for (u32 i = 0; i < fields_of(kKind); ++i) {
      if (thread % 32 < kSlotThreads) {
        scratch[(i * warps + warp) * kSlotLines + quad + j] = total.line[j].field[i];
      }
    }
  }
  synchronize_block();
  Reduced<kKind> result;
  for (u32 other = 0; other < warps; ++other) {
    Reduced<kKind> part;
#pragma unroll
    for (u32 i = 0; i < fields_of(kKind); ++i) {
      part.field[i] = scratch[(i * warps + other) * kSlotLines + thread % kSlotLines];
    }
    result = merge(result, part);
  }
  synchronize_block();  // the next call writes the same memory
  return result;
}

// The sum over all threads, in each of them.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
#pragma unroll
  for (u32 mask = 1; mask < 32; mask *= 2) value += exchange(value, mask);
  if (thread_index() % 32 == 0) scratch[thread_index() / 32] = value;
  synchronize_block();
  float sum = 0.0f;
  for (u32 warp = 0; warp < block_threads() / 32; ++warp) sum += scratch[warp];
  synchronize_block();
  return sum;
}

}  // namespace coda::device
