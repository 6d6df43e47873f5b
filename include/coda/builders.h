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
// (x - mean) ⊙ rsqrt(var + eps) ⊙ weight + bias, var the mean of squares about the mean.
Value layer_norm(Value x, Value weight, Value bias, double eps, Where where = Where::current());
// silu(gate) ⊙ up.
Value swiglu(Value gate, Value up, Where where = Where::current());
Value geglu(Value gate, Value up, Where where = Where::current());

// Rotates the pairs of x [M, H * head_dim] by the angles whose cosines and sines are the tables
// [positions, head_dim / 2], row position[i] for row i. half: pairs are (j, j + head_dim / 2)
// inside each head (Hugging Face); else (2j, 2j + 1).
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
// times `scale`, then soft_cap * tanh(score / soft_cap) if there is a soft-cap (Gemma 2).
struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // a divisor of heads
  int64_t head_dim = 64;
  int64_t value_dim = 0;          // 0: head_dim
  Dim sequence = 1;               // M must be a multiple of it
  bool causal = true;             // token i sees tokens j <= i; else all of its sequence
  int64_t window = 0;             // of causal attention: token i sees j > i - window only; 0: all
  std::optional<double> scale{};  // none: 1 / sqrt(head_dim)
  double soft_cap = 0;            // 0: none
};
Value attention(Value q, Value k, Value v, const AttentionOptions& options,
                Where where = Where::current());
// Row ids[i] of table [V, D]; ids i32 [M, 1]. `padding_row` gets no gradient from here, as PyTorch
// has it for padding_idx.
Value embedding(Value table, Value ids, std::optional<int64_t> padding_row = std::nullopt,
                Where where = Where::current());

// 1 for the k largest elements of each row of x [M, N], 0 for the others; all are 1 where N <= k.
// NaN is larger than any number, and of equal elements the one with the lower column is chosen, so
// that exactly k are. Its gradient is 0: what is multiplied by it has the gradient of what is
// chosen.
Value top_k_mask(Value x, int64_t k, Where where = Where::current());

// Computing on chosen rows only. For each column of a mask [M, E] a list [rows, 1] of the rows
// where it is not 0, ascending, and -1 behind them; E is a number. Rows that a list has no room for
// are left out. Lists have no gradient.
std::vector<Value> marked_rows(Value mask, const Dim& rows, Where where = Where::current());
// Rows of x [M, D] by such a list [C, 1]: [C, D], with zeros where it has -1, which gather_rows, a
// load of a program, knows nothing of.
Value gather(Value x, Value rows, Where where = Where::current());
// Its adjoint: [count, D], where row i is the sum of the rows j of x [C, D] with rows[j] = i, in
// ascending order. A row with -1 goes nowhere.
Value scatter_add(Value x, Value rows, const Dim& count, Where where = Where::current());

// cap * tanh(x / cap): what lies far outside of (-cap, cap) comes near its ends (Gemma 2 caps its
// logits at 30). cap > 0.
Value soft_cap(Value x, double cap, Where where = Where::current());

// Cross-entropy of logits l [M, V] with targets t i32 [M, 1], each in [0, V) or ignore_index. With
// p = softmax(l) and s = label_smoothing a row's loss is
//   -(1 - s) log p[t] - s / V * sum over j of log p[j] + z_loss * logsumexp(l)^2,
// as torch.nn.functional.cross_entropy(label_smoothing=s) has it, and the last term as PaLM
// (Chowdhery et al. 2022, section 5) adds it. 0 where the target is ignore_index.
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0;  // in [0, 1)
  double z_loss = 0;           // at least 0; PaLM: 1e-4
};
// `rows` is each row's loss [M, 1]; `mean` their mean [1, 1] over the rows that count (NaN if none
// counts, as PyTorch has it).
struct CrossEntropy {
  Value rows;
  Value mean;
};
CrossEntropy cross_entropy(Value logits, Value targets, const CrossEntropyOptions& options = {},
                           Where where = Where::current());

}  // namespace CODA_API coda
