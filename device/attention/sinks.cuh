// SPDX-License-Identifier: Apache-2.0
// The gradient of sinks, the last kernel of attention's backward if there are sinks. A sink is a
// learned logit of a head. Softmax adds exp(sink) to its denominator, but there is no value for a
// sink. The probability of a sink is p = exp(sink - lse), and the gradient of a sink is the sum of
// -p dy·y over all queries. Invariant: the order of the sum is fixed, so results are bitwise
// repeatable.
#pragma once

#include "device/attention/sizes.cuh"
#include "device/attention/tiles.cuh"
#include "device/element.cuh"
#include "device/ptx/lanes.cuh"
#include "device/ptx/launch_memory.cuh"
#include "device/ptx/memory_moves.cuh"
#include "device/values/math.cuh"

namespace coda::device::attention {

inline constexpr u32 kFloatBytes = 4;

// Two numbers of each query, fp32 [sequences, heads, padded tokens].
struct QueryNumbers {
  u64 subtracted;  // the log-sum-exp as an exponent of 2; infinity if the query sees nothing
  u64 dots;        // dy·y
  u32 padded;
};

// gradient: fp32 [heads]. One CTA of kSinkThreads threads for each head, with a float of shared
// memory for each thread.
__device__ __forceinline__ void sink_gradient(const AttentionSizes& sizes,
                                              const QueryNumbers& queries, u64 gradient) {
  const u32 head = block_index();
  const u32 thread = thread_index();
  const float sink = load_element<Element::f32>(sizes.sinks, head) * kLog2E;
  float sum = 0;
  for (u32 sequence = 0; sequence < sizes.sequences(); ++sequence) {
    const u64 first = (static_cast<u64>(sequence) * sizes.heads + head) * queries.padded;
#pragma unroll 4
    for (u32 token = thread; token < sizes.sequence; token += kSinkThreads) {
      const float subtracted = load_element<Element::f32>(queries.subtracted, first + token);
      const float dot = load_element<Element::f32>(queries.dots, first + token);
      sum = fmaf(-power_of_two(sink - subtracted), dot, sum);
    }
  }
  const SharedAddress own = launch_memory() + thread * kFloatBytes;
#pragma unroll
  for (u32 half = kSinkThreads / 2; half != 0; half /= 2) {
    store_shared(own, sum);
    synchronize_block();
    if (thread < half) sum += load_shared(own + half * kFloatBytes);
    synchronize_block();
  }
  if (thread == 0) store_element<Element::f32>(gradient, head, sum);
}

}  // namespace coda::device::attention
