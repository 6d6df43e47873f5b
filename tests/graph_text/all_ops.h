// SPDX-License-Identifier: Apache-2.0
// A graph that has every operation of a Graph, for tests of what goes over all of them.
#pragma once

#include "coda/builders.h"
#include "coda/graph_text.h"
#include "coda/operation.h"

namespace coda::tests {

inline NamedGraph graph_of_all_ops() {
  NamedGraph all;
  all.name = "all.ops";
  Graph& g = all.graph;
  const Dim wide = Dim::parse("8*H");
  const Dim half = Dim::parse("4*H");
  const Dim quarter = Dim::parse("2*H");
  const Value x = g.input("x", {"M", wide}, DType::bf16);
  const Value w = g.parameter("layers.0.w", {wide, wide}, DType::bf16);
  const Value v = g.parameter("v", {"N", wide});
  const Value ids = g.table("token ids", {"M", 1}, DType::i32);
  const Value s = g.input("s", {1, 1});
  const Value product = matmul({{x, w, {false, true}}, {x * 2.0, w, {}}});
  const Value h = gelu(product - x) / row_reduce(x, PartialKind::abs_max);
  const Value a = split_pair(h, wide, 0);
  const Value b = split_pair(h, wide, 1);
  const Value turned = merge_pairs(a * s, -b, 2);
  const Value slice = slice_columns(turned, quarter, half);
  const Value joined = concat_columns({slice, a});
  const Value groups = group_repeat(group_sum(joined, 4), 4);
  const Value halves = repeat_columns(slice, 2);
  const Value scores = linear(groups + halves, v) * g.column_index("N") + g.ones("N") * 0.5;
  const Value chosen = select_column(scores, ids);
  const Value rows = gather_rows(v, ids) * g.reciprocal_dim("M");
  const Value sums = row_sum(rows) + row_sum(transpose(row_sum(x)) * 0.25) + row_sum(col_sum(v));
  const Value largest = col_reduce(scores, PartialKind::max);
  const Value q = g.input("q", {"M", 8});
  const std::vector<Value> both =
      opaque_call("attention", {q, q * sums, q},
                  {{"heads", 2}, {"kv_heads", 2}, {"head_dim", 4}, {"scale", 0.5}, {"causal", 1}},
                  {{"sequence", "T"}});
  all.outputs = {{"chosen", chosen},
                 {"sums", sums * row_logsumexp(scores), DType::f16},
                 {"largest of columns", largest},
                 {"o", both[0] * top_k_mask(q, 3), DType::bf16},
                 {"lse", both[1]}};
  return all;
}

}  // namespace coda::tests
