// SPDX-License-Identifier: Apache-2.0
// Transposes attention's log-sum-exp between our layout (for each token a row of heads) and cuDNN's
// (for each head of a sequence a row of tokens). A thread moves one number.
#pragma once

#include "device/types.cuh"

namespace coda::device {

// Writes `of_tokens` [sequences * tokens, heads] if to_tokens, else `of_heads` [sequences * heads,
// tokens]. Both are fp32 and dense, with fewer than 2^32 numbers.
__device__ __forceinline__ void transpose_statistics(u64 of_tokens, u64 of_heads, u32 sequences,
                                                     u32 heads, u32 tokens, bool to_tokens) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= sequences * heads * tokens) return;
  const u32 token = i % tokens;
  const u32 head = i / tokens % heads;
  const u32 sequence = i / tokens / heads;
  auto* const by_token = reinterpret_cast<float*>(of_tokens) +
                         (static_cast<u64>(sequence) * tokens + token) * heads + head;
  auto* const by_head = reinterpret_cast<float*>(of_heads) + i;
  if (to_tokens) {
    *by_token = *by_head;
  } else {
    *by_head = *by_token;
  }
}

}  // namespace coda::device
