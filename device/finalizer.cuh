// SPDX-License-Identifier: Apache-2.0
// Kernels over vectors: who works on which line (an element of a vector), how the partials of a
// line become one, and the sum of a vector. A line has one thread, neighbouring lanes of a warp
// (row partials, which lie side by side), or every eighth thread of a block (column partials, which
// lie below each other). Invariant: which partials a thread reduces, and who merges with whom,
// depends on the number of partials and on nothing else; so results repeat bitwise.
#pragma once

#include "device/arguments.cuh"
#include "device/dependent_launch.cuh"
#include "device/precise_math.cuh"
#include "device/reductions.cuh"
#include "device/vector_access.cuh"

namespace coda::device {

inline constexpr u32 kFinalizerThreads = 256;  // of one block among many
inline constexpr u32 kSingleThreads = 512;     // of a block that does all
inline constexpr u32 kLineBatch = 8;           // lines of such a block's thread in flight
inline constexpr u32 kSlotLines = 8;           // lines of a block that works by slots
inline constexpr u32 kFinalizerScratch =
    fields_of(Reduction::centred) * (kSingleThreads / 32) * kSlotLines;  // floats

struct LinePlace {
  u32 line = 0;
  u32 member = 0;   // of those who work on the line
  u32 members = 1;  // a power of two
  bool exists = false;

  // Who reads and writes vectors for the line.
  constexpr bool is_first() const { return exists && member == 0; }
};

// `members` lanes a line; `first` is the block's first line.
constexpr LinePlace place_in_lanes(u32 thread, u32 first, u32 lines, u32 members) {
  const u32 line = first + thread / members;
  return {.line = line, .member = thread % members, .members = members, .exists = line < lines};
}
constexpr LinePlace place_in_slots(u32 thread, u32 threads, u32 first, u32 lines) {
  const u32 line = first + thread % kSlotLines;
  return {.line = line,
          .member = thread / kSlotLines,
          .members = threads / kSlotLines,
          .exists = line < lines};
}

// Where the partials of a line lie: next to each other in a row partial, [lanes][lines][count], or
// below each other in a column partial, [lanes][count][lines].
struct Partials {
  u64 tensor = 0;
  u32 pitch = 0;  // elements between rows in memory
  u32 lines = 0;
  u32 count = 0;    // partials of a line
  u32 reduced = 0;  // values of a line, 64 a partial
};

template <bool kAlongRows>
constexpr u64 partial_index(const Partials& of, u32 lane, u32 line, u32 partial) {
  const u64 row = kAlongRows ? static_cast<u64>(lane) * of.lines + line
                             : static_cast<u64>(lane) * of.count + partial;
  return row * of.pitch + (kAlongRows ? partial : line);
}

// A thread's share: partials member, member + members, ..., from first to last.
template <Reduction kKind, bool kAlongRows>
__device__ __forceinline__ Reduced<kKind> reduce_share(const Partials& of, const LinePlace& at) {
  constexpr u32 kBatch = 8;  // loads of a lane in flight
  Reduced<kKind> total;
  const u32 end = at.exists ? of.count : 0;
  for (u32 first = at.member; first < end; first += kBatch * at.members) {
    float lane[lanes_of(kKind)][kBatch];
#pragma unroll
    for (u32 i = 0; i < kBatch; ++i) {
      const u32 partial = first + i * at.members;
#pragma unroll
      for (u32 l = 0; l < lanes_of(kKind); ++l) {
        lane[l][i] = partial < end
                         ? load_element<Stored::f32>(
                               of.tensor, partial_index<kAlongRows>(of, l, at.line, partial))
                         : 0.0f;
      }
    }
    if constexpr (kKind == Reduction::log_sum_exp) {
      // One exponential a partial, and one to bring down what was summed before.
      float largest = total.field[0];
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        if (first + i * at.members < end) largest = maximum(largest, lane[0][i]);
      }
      float sum = total.field[1] * weight_below(total.field[0], largest);
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        const float weighed = lane[1][i] * weight_below(lane[0][i], largest);
        if (first + i * at.members < end) sum += weighed;
      }
      total.field[0] = largest;
      total.field[1] = sum;
    } else {
#pragma unroll
      for (u32 i = 0; i < kBatch; ++i) {
        const u32 partial = first + i * at.members;
        if (partial < end) {
          const u32 count = smaller(kPartialSpan, of.reduced - partial * kPartialSpan);
          total = merge(total, Reduced<kKind>(lane[0][i], lane[lanes_of(kKind) - 1][i],
                                              static_cast<float>(count)));
        }
      }
    }
  }
  return total;
}

// The whole line's reduction, in each of its lanes.
template <Reduction kKind, bool kAlongRows>
__device__ __forceinline__ Reduced<kKind> combine_in_lanes(const Partials& of,
                                                           const LinePlace& at) {
  Reduced<kKind> total = reduce_share<kKind, kAlongRows>(of, at);
  for (u32 mask = 1; mask < at.members; mask *= 2) total = merge_lanes(total, mask);
  return total;
}

// The same for slots, in all threads of the line: first within warps, then warp by warp.
template <Reduction kKind, bool kAlongRows>
__device__ __forceinline__ Reduced<kKind> combine_in_slots(const Partials& of, const LinePlace& at,
                                                           float* scratch) {
  Reduced<kKind> total = reduce_share<kKind, kAlongRows>(of, at);
#pragma unroll
  for (u32 mask = kSlotLines; mask < 32; mask *= 2) total = merge_lanes(total, mask);
  const u32 warps = block_threads() / 32;
  const u32 warp = thread_index() / 32;
  const u32 column = thread_index() % kSlotLines;
#pragma unroll
  for (u32 i = 0; i < fields_of(kKind); ++i) {
    if (thread_index() % 32 < kSlotLines) {
      scratch[(i * warps + warp) * kSlotLines + column] = total.field[i];
    }
  }
  synchronize_block();
  Reduced<kKind> result;
  for (u32 other = 0; other < warps; ++other) {
    Reduced<kKind> part;
#pragma unroll
    for (u32 i = 0; i < fields_of(kKind); ++i) {
      part.field[i] = scratch[(i * warps + other) * kSlotLines + column];
    }
    result = merge(result, part);
  }
  synchronize_block();  // the next one writes the same memory
  return result;
}

// The sum of all threads' values, in each of them.
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
