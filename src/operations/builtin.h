// SPDX-License-Identifier: Apache-2.0
// The operations that every program has, one function an entry of the registry.
#pragma once

#include "coda/operation.h"

namespace coda {

// q [M, heads * head_dim], k [M, kv_heads * head_dim], v [M, kv_heads * head_dim] -> y as q, lse
// fp32 [M, heads]: the log of each row's sum of exp(score). Rows are sequences of `sequence` rows,
// one after another; query head h reads key-value head h / (heads / kv_heads). The optional
// operand `documents`, i32 [M, 2], restricts row i to the keys documents[i, 0] to
// documents[i, 1] - 1 of its sequence. A row without keys has y = 0 and lse = -infinity. With
// the attribute key_spans=1 it is i32 [M, 4]: the rows documents[i, 2] to documents[i, 3] - 1 are
// those that see key i, as the first two columns say. Each column ascends.
Operation attention_operation();
// q, k, v, y, lse, dy and optionally documents -> dq, dk, dv.
Operation attention_backward_operation();

// q, k, v of the newest M tokens of one sequence, and keys and values [P, as k and v] of those
// before, the first `length` [1, 1] of which count -> y as q: what attention says of the last M
// of length + M tokens.
Operation attention_with_past_operation();

// table [V, D], ids [M, 1] -> [M, D].
Operation embedding_operation();
// drows [M, D], ids [M, 1], and perhaps what it is added to -> dtable [rows, D].
Operation embedding_backward_operation();

// x [M, N] -> [M, N]: 1 for the k largest of each row, else 0.
Operation top_k_mask_operation();

// mask [M, E] -> E lists [rows, 1] of fp32 row numbers: those that a column marks, ascending, then
// -1. Marks beyond the list's size are left out.
Operation marked_rows_operation();
// x [N, D], rows [C, 1] -> [C, D], 0 where rows is -1.
Operation gather_operation();
// x [C, D], rows [C, 1], and perhaps what it is added to -> [rows, D].
Operation scatter_add_operation();

}  // namespace coda
