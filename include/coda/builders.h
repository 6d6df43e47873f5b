// SPDX-License-Identifier: Apache-2.0
// Builders of Transformer parts as plain mathematics; each expands into primitive operations of the
// Graph.
#pragma once

#include <optional>
#include <vector>

#include "coda/api.h"
#include "coda/graph.h"

namespace CODA_API coda {

// x ⊙ rsqrt(mean(x²) + eps) ⊙ weight; x [M, D], weight [1, D]. offset 1 gives Gemma's (1 + weight).
Value rms_norm(Value x, Value weight, double eps, double offset = 0,
               Where where = Where::current());
// The reciprocal root mean square of each row, [M, 1].
Value rms_reciprocal(Value x, double eps, Where where = Where::current());
// (x - mean) ⊙ rsqrt(var + eps) ⊙ weight + bias, where var is the mean of (x - mean)².
Value layer_norm(Value x, Value weight, Value bias, double eps, Where where = Where::current());
// silu(gate) ⊙ up.
Value swiglu(Value gate, Value up, Where where = Where::current());
Value geglu(Value gate, Value up, Where where = Where::current());

// Rotary position embedding: rotates pairs of columns of x [M, H * head_dim]. Row i uses row
// position[i] of the tables of cosines and sines, [positions, head_dim / 2]. Pairs are the columns
// (j, j + head_dim / 2) of each head if `half` (Hugging Face), else (2j, 2j + 1).
struct RopeTables {
  Value cos;
  Value sin;
  Value position;  // i32 [M, 1]
};
Value rope(Value x, const RopeTables& tables, int64_t heads, int64_t head_dim, bool half = true,
           Where where = Where::current());

// softmax(scores)·v over sequences of `sequence` rows, one after another: q [M, heads * head_dim],
// k [M, kv_heads * head_dim], v [M, kv_heads * value_dim] -> [M, heads * value_dim]. Query head h
// reads key-value head h / (heads / kv_heads). The score of a query and a key is their dot product
// times `scale`. With a soft-cap (Gemma 2) it is then soft_cap * tanh(score / soft_cap). With
// `documents`, i32 [M, 2], token i attends only to the tokens documents[i, 0] to
// documents[i, 1] - 1 of its sequence, those of its document. Both columns ascend within a
// sequence. The result of a token that attends to nothing is 0. If `documents` is i32 [M, 4], its
// first two columns hold for the query of token i, and documents[i, 2] to documents[i, 3] - 1 are
// the tokens whose queries attend to key i. A caller that has moved the keys of padding behind all
// other keys needs this, because key i is not of token i then. `sinks` (gpt-oss), fp32 [1, heads]:
// a logit of each head whose exponential is added only to the denominator of softmax, so the
// weights of the values sum to less than 1.
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // a divisor of heads
  int64_t head_dim = 64;
  int64_t value_dim = 0;          // 0: head_dim
  Dim sequence = 1;               // M must be a multiple of it
  bool causal = true;             // token i sees tokens j <= i; false: all of its sequence
  int64_t window = 0;             // causal only: token i sees tokens j > i - window; 0: no window
  std::optional<double> scale{};  // none: 1 / sqrt(head_dim)
  double soft_cap = 0;            // 0: none
  Value documents{};              // none: each sequence is one document
  Value sinks{};                  // none: weights sum to 1
};
Value attention(Value q, Value k, Value v, const AttentionOptions& options,
                Where where = Where::current());
// Rows ids[i] of table [V, D]; ids i32 [M, 1]. The row `padding_row` gets no gradient from this
// lookup (as PyTorch's padding_idx).
Value embedding(Value table, Value ids, std::optional<int64_t> padding_row = std::nullopt,
                Where where = Where::current());

// 1 for the k largest elements of each row of x [M, N], else 0; all 1 if N <= k. Exactly k elements
// are chosen: NaN counts as larger than any number, and of equal elements the one in the lower
// column comes first. The mask itself has gradient 0; in mask * y the gradient flows to the chosen
// elements of y.
Value top_k_mask(Value x, int64_t k, Where where = Where::current());

// The three functions below compute on selected rows only. marked_rows returns, for each column of
// a mask [M, E], a list [rows, 1] of the rows where the mask is not 0: ascending, padded with -1. E
// must be a constant. Rows beyond the list's length are dropped. Lists have no gradient.
std::vector<Value> marked_rows(Value mask, const Dim& rows, Where where = Where::current());
// The rows of x [M, D] that a list [C, 1] names: [C, D], with zeros for -1. (gather_rows, which a
// program can load directly, does not handle -1.)
Value gather(Value x, Value rows, Where where = Where::current());
// The adjoint of gather: [count, D], whose row i is the sum of those rows j of x [C, D] with
// rows[j] = i, summed in ascending order. Rows with -1 are dropped.
Value scatter_add(Value x, Value rows, const Dim& count, Where where = Where::current());

// cap * tanh(x / cap), a smooth clamp to (-cap, cap). Gemma 2 caps its logits at 30. cap > 0.
Value soft_cap(Value x, double cap, Where where = Where::current());

// Cross-entropy of logits l [M, V] with targets t i32 [M, 1], each in [0, V) or ignore_index. With
// p = softmax(l) and s = label_smoothing a row's loss is
//   -(1 - s) log p[t] - s / V * sum over j of log p[j] + z_loss * logsumexp(l)^2,
// The second term is that of torch.nn.functional.cross_entropy(label_smoothing=s), the last one
// that of PaLM (Chowdhery et al. 2022, section 5). The loss is 0 where the target is ignore_index.
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // in [0, 1)
  double z_loss = 0;           // at least 0; PaLM: 1e-4
};
// `rows`: the loss of each row, [M, 1]. `mean`: the mean loss of the rows that are not ignored, [1,
// 1]; NaN if all are ignored (as PyTorch).
struct CrossEntropy {
  Value rows;
  Value mean;
};
CrossEntropy cross_entropy(Value logits, Value targets, const CrossEntropyOptions& options = {},
                           Where where = Where::current());

}  // namespace CODA_API coda
