// SPDX-License-Identifier: Apache-2.0
// Attention with a norm of queries and keys in each head before RoPE, as in Qwen3. The norm sums
// over groups of columns after a GEMM, and the GPU backend splits such a program.
#pragma once

#include "plan/blocks.h"

namespace coda::tests {

inline void head_norm_block(Block& b, const LlamaSizes& s) {
  const Value x = b.graph.input("x", {"M", s.hidden}, b.storage);
  b.wants_gradient(x, "d_x");
  const RopeTables tables = rope_tables(b.graph, s);
  const Value h = rms_norm(x, b.parameter("input_norm", {1, s.hidden}), 1e-5);
  const auto normed = [&](const std::string& name, int64_t heads) {
    const int64_t columns = heads * s.head_dim;
    const Value p = linear(h, b.parameter(name, {columns, s.hidden}));
    const Value squares = group_sum(p * p, s.head_dim);
    const Value r = rsqrt(squares * (1.0 / static_cast<double>(s.head_dim)) + 1e-5);
    const Value w = b.parameter(name + "_norm", {1, columns});
    return rope(p * group_repeat(r, s.head_dim) * w, tables, heads, s.head_dim);
  };
  const Value q = normed("q", s.heads);
  const Value k = normed("k", s.kv_heads);
  const Value v = linear(h, b.parameter("v", {s.kv_heads * s.head_dim, s.hidden}));
  const AttentionOptions options{
      .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .sequence = s.sequence};
  const Value y = attention(q, k, v, options);
  b.seed(x + linear(y, b.parameter("o", {s.hidden, s.heads * s.head_dim})), "out");
}

}  // namespace coda::tests
