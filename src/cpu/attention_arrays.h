// SPDX-License-Identifier: Apache-2.0
// How one thread's scratch of an attention task is divided. A block is 96 rows of a head, or of
// scores; a head's columns are padded to whole vectors of any instruction set, so that products
// need no edge case.
#pragma once

#include <cstddef>

#include "cpu/attention_blocks.h"

namespace coda::cpu {

struct AttentionArrays {
  size_t padded = 0;  // columns of a head's block: head_dim rounded up to 16
  size_t blocks = 0;  // of a sequence
  // One head's keys and values, all blocks of them.
  float* keys_t = nullptr;    // [blocks][padded][block]
  float* keys = nullptr;      // [blocks][block][padded]; backward
  float* values = nullptr;    // [blocks][block][padded]; forward
  float* values_t = nullptr;  // [blocks][padded][block]; backward
  float* dk = nullptr;        // [blocks][block][padded]; backward
  float* dv = nullptr;        // [blocks][block][padded]; backward
  // One block of one head's queries.
  float* q = nullptr;   // [block][padded], times scale * log2(e)
  float* dy = nullptr;  // [block][padded]; backward
  float* out =
      nullptr;  // [block][padded]: y before it is divided by row_sum; dq before it is scaled
  float* scores = nullptr;   // [block][block]: scores in units of log 2, then probabilities
  float* dscores = nullptr;  // [block][block]; backward: gradients of probabilities, then of scores
  float* row_max = nullptr;  // [block]; forward
  float* row_sum = nullptr;  // [block]; forward
  float* block_sum = nullptr;  // [block]; forward: of the present block of keys
  float* rescale = nullptr;    // [block]; forward: what earlier sums are to be multiplied by
  float* log_sum =
      nullptr;  // [block]; backward: lse in units of log 2, and what rounding it to a float
  float* log_sum_low = nullptr;  // left: the error would be a factor of the whole row
  float* delta = nullptr;        // [block]; backward: row sums of dy * y
  size_t size = 0;               // floats in all

  size_t block_at(size_t block) const { return block * kAttentionBlock * padded; }
};

// The arrays in `scratch`; without one, only the size means something.
inline AttentionArrays attention_arrays(const AttentionShape& shape, bool backward,
                                        float* scratch) {
  AttentionArrays w;
  w.padded = (static_cast<size_t>(shape.head_dim) + 15) / 16 * 16;
  w.blocks = static_cast<size_t>(shape.blocks());
  auto take = [&](size_t floats, bool wanted = true) {
    float* at = scratch == nullptr ? nullptr : scratch + w.size;
    if (wanted) w.size += (floats + 15) / 16 * 16;
    return wanted ? at : nullptr;
  };
  const size_t rows = kAttentionBlock, block = rows * w.padded, head = w.blocks * block;
  w.keys_t = take(head);
  w.keys = take(head, backward);
  w.values = take(head, !backward);
  w.values_t = take(head, backward);
  w.dk = take(head, backward);
  w.dv = take(head, backward);
  w.q = take(block);
  w.dy = take(block, backward);
  w.out = take(block);
  w.scores = take(rows * rows);
  w.dscores = take(rows * rows, backward);
  for (float** row : {&w.row_max, &w.row_sum, &w.block_sum, &w.rescale})
    *row = take(rows, !backward);
  for (float** row : {&w.log_sum, &w.log_sum_low, &w.delta}) *row = take(rows, backward);
  return w;
}

}  // namespace coda::cpu
