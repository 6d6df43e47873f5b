// SPDX-License-Identifier: Apache-2.0
// How one thread's scratch of an attention task is divided. A block is 96 rows of a head, or of
// scores; a head's columns are padded to whole vectors of any instruction set, so that products
// need no edge case.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/rounding.h"
#include "operations/attention_blocks.h"

namespace coda::cpu {

struct AttentionArrays {
  size_t padded = 0;        // columns of a head's block: head_dim rounded up to 16
  size_t value_padded = 0;  // the same of values, outputs and their gradients
  size_t blocks = 0;        // of a sequence
  // One head's keys and values, all blocks of them.
  float* keys_t = nullptr;    // [blocks][padded][block]
  float* keys = nullptr;      // [blocks][block][padded]; backward
  float* values = nullptr;    // [blocks][block][value_padded]; forward
  float* values_t = nullptr;  // [blocks][value_padded][block]; backward
  float* dk = nullptr;        // [blocks][block][padded]; backward
  float* dv = nullptr;        // [blocks][block][value_padded]; backward
  // One block of one head's queries.
  float* q = nullptr;   // [block][padded], times scale * log2(e)
  float* dy = nullptr;  // [block][value_padded]; backward
  // [block][the wider of both]: y before it is divided by row_sum, in rows of value_padded; dq
  // before it is scaled, in rows of padded; what is transposed next.
  float* out = nullptr;
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

  size_t keys_at(size_t block) const { return block * kAttentionBlock * padded; }
  size_t values_at(size_t block) const { return block * kAttentionBlock * value_padded; }
};

// The arrays in `scratch`; without one, only the size means something.
inline AttentionArrays attention_arrays(const AttentionShape& shape, bool backward,
                                        float* scratch) {
  AttentionArrays w;
  w.padded = round_up(shape.head_dim, 16);
  w.value_padded = round_up(shape.value_dim, 16);
  w.blocks = static_cast<size_t>(blocks_of(shape));
  auto take = [&](size_t floats, bool wanted = true) {
    float* at = scratch == nullptr ? nullptr : scratch + w.size;
    if (wanted) w.size += round_up(floats, 16);
    return wanted ? at : nullptr;
  };
  const size_t rows = kAttentionBlock;
  const size_t keys = w.blocks * rows * w.padded, values = w.blocks * rows * w.value_padded;
  w.keys_t = take(keys);
  w.keys = take(keys, backward);
  w.values = take(values, !backward);
  w.values_t = take(values, backward);
  w.dk = take(keys, backward);
  w.dv = take(values, backward);
  w.q = take(rows * w.padded);
  w.dy = take(rows * w.value_padded, backward);
  w.out = take(rows * std::max(w.padded, w.value_padded));
  w.scores = take(rows * rows);
  w.dscores = take(rows * rows, backward);
  for (float** row : {&w.row_max, &w.row_sum, &w.block_sum, &w.rescale})
    *row = take(rows, !backward);
  for (float** row : {&w.log_sum, &w.log_sum_low, &w.delta}) *row = take(rows, backward);
  return w;
}

}  // namespace coda::cpu
