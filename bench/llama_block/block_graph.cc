// SPDX-License-Identifier: Apache-2.0
#include "block_graph.h"

#include <algorithm>

namespace coda::bench {

BlockSize block_size(int64_t tokens, int64_t width, int64_t mlp) {
  const int64_t heads = std::max<int64_t>(1, width / 64);
  const int64_t kv_heads = std::max<int64_t>(1, heads % 3 == 0 ? heads / 3 : heads / 4);
  return {tokens, width, mlp, heads, kv_heads};
}

BlockSize wide_headed(int64_t tokens, int64_t width, int64_t mlp) {
  return {tokens, width, mlp, width / 128, width / 128};
}

CompileRequest add_block(Graph& graph, const BlockSize& size, DType storage, bool backward) {
  CompileRequest request;
  const int64_t d = size.width;
  const int64_t kv = size.kv_heads * size.head_dim();
  auto activation = [&](const std::string& name, int64_t cols) {
    return graph.input(name, {"M", cols}, storage);
  };
  auto wants = [&](Value v, const std::string& name) {
    if (backward) request.gradients.push_back({v, "d_" + name, storage, false});
    return v;
  };
  auto weight = [&](const std::string& name, Shape shape) {
    return wants(graph.parameter(name, std::move(shape), storage), name);
  };
  const RopeTables tables{graph.table("cos", {size.tokens, size.head_dim() / 2}),
                          graph.table("sin", {size.tokens, size.head_dim() / 2}),
                          graph.table("position", {"M", 1}, DType::i32)};
  const Value x0 = wants(activation("x0", d), "x0");
  const Value y0 = wants(activation("y0", d), "y0");
  const Value x1 = x0 + linear(y0, weight("wo", {d, d}));
  const Value h1 = rms_norm(x1, weight("w1", {1, d}), 1e-5);
  const Value a =
      swiglu(linear(h1, weight("wg", {size.mlp, d})), linear(h1, weight("wu", {size.mlp, d})));
  const Value x2 = x1 + linear(a, weight("wd", {d, size.mlp}));
  const Value h2 = rms_norm(x2, weight("w2", {1, d}), 1e-5);
  const Value q = rope(linear(h2, weight("wq", {d, d})), tables, size.heads, size.head_dim());
  const Value k = rope(linear(h2, weight("wk", {kv, d})), tables, size.kv_heads, size.head_dim());
  const Value v = linear(h2, weight("wv", {kv, d}));
  request.outputs = {{"x2", x2}, {"q", q}, {"k", k}, {"v", v}};
  if (backward) {
    for (const NamedValue& output : request.outputs) {
      request.seeds.push_back(
          {output.value, activation("d_" + output.name, output.value.shape().cols.constant())});
    }
  }
  return request;
}

Plan block_plan(const BlockSize& size, DType storage, const Rates& rates, bool backward) {
  Graph graph;
  const CompileRequest request = add_block(graph, size, storage, backward);
  CompileOptions options;
  options.rates = rates;
  options.storage = storage;
  options.sizes = {{"M", size.tokens}};
  options.overwrite_saved = true;  // as in training: one backward for each forward
  return compile(graph, request, options).plan;
}

}  // namespace coda::bench
