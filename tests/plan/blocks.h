// SPDX-License-Identifier: Apache-2.0
// Graphs of Transformer blocks with their compile requests, for tests of plans. They also say which
// operations a framework would run one by one (op and in), for tests of rounding errors.
#pragma once

#include <random>

#include "coda/builders.h"
#include "coda/compile.h"

namespace coda {

struct Block {
  DType storage = DType::f32;  // of parameters and activations given to the block
  Graph graph;
  CompileRequest request;
  std::vector<NamedValue> given;  // vectors that another layer makes

  // With op_by_op the graph has a node of its own for every operand that one framework operation
  // takes from another, so that its cotangent is what that operation's backward writes.
  bool op_by_op = false;
  std::vector<Value> written;  // what frameworks write to memory, one a call of op or in

  // The result of one framework operation.
  Value op(Value v) {
    written.push_back(v);
    return v;
  }
  // An operand of one: x, as a node that no other operation reads.
  Value in(Value x) {
    if (!op_by_op) return x;
    return op(maximum(x, graph.constant(-1e30 * static_cast<double>(1 + written.size()))));
  }
  // Products behind which a framework writes once.
  Value product(Value x, Value w) { return op(linear(in(x), w)); }
  Value product(Value x, Value w, Value bias) { return op(conv1d(in(x), w) + bias); }
  Value sum(Value x, Value y) { return op(in(x) + in(y)); }

  Value parameter(const std::string& name, Shape shape) {
    const Value v = graph.parameter(name, std::move(shape), storage);
    request.gradients.push_back({v, "d_" + name});
    return v;
  }
  void wants_gradient(Value v, const std::string& name) { request.gradients.push_back({v, name}); }
  void seed(Value output, const std::string& name) {
    request.outputs.push_back({name, output});
    request.seeds.push_back({output, graph.input("d_" + name, output.shape(), storage)});
  }
};

struct LlamaSizes {
  int64_t hidden = 12;
  int64_t heads = 3;
  int64_t kv_heads = 1;
  int64_t head_dim = 4;
  int64_t mlp = 10;
  int64_t vocab = 9;
  Dim sequence = 3;
};

inline RopeTables rope_tables(Graph& graph, const LlamaSizes& s) {
  return {graph.table("cos", {16, s.head_dim / 2}), graph.table("sin", {16, s.head_dim / 2}),
          graph.table("position", {"M", 1}, DType::i32)};
}

inline Value llama_layer(Block& b, Value x, Value r, const LlamaSizes& s, const RopeTables& rope_of,
                         const std::string& prefix) {
  const int64_t q_cols = s.heads * s.head_dim;
  const int64_t kv_cols = s.kv_heads * s.head_dim;
  const Value w1 = b.parameter(prefix + "input_norm", {1, s.hidden});
  const Value xn =
      b.op(r.graph != nullptr ? mul(mul(b.in(x), r), w1) : rms_norm(b.in(x), w1, 1e-5));
  auto rotated = [&](const char* name, int64_t heads) {
    const Value w = b.parameter(prefix + name, {heads * s.head_dim, s.hidden});
    return b.op(rope(b.in(b.product(xn, w)), rope_of, heads, s.head_dim));
  };
  const Value q = rotated("q", s.heads);
  const Value k = rotated("k", s.kv_heads);
  const Value v = b.product(xn, b.parameter(prefix + "v", {kv_cols, s.hidden}));
  const AttentionOptions options{
      .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .sequence = s.sequence};
  const Value y = b.op(attention(b.in(q), b.in(k), b.in(v), options));
  const Value x1 = b.sum(x, b.product(y, b.parameter(prefix + "o", {s.hidden, q_cols})));
  const Value w2 = b.parameter(prefix + "post_norm", {1, s.hidden});
  const Value h = b.op(rms_norm(b.in(x1), w2, 1e-5));
  const Value gate = b.product(h, b.parameter(prefix + "gate", {s.mlp, s.hidden}));
  const Value up = b.product(h, b.parameter(prefix + "up", {s.mlp, s.hidden}));
  const Value a = b.op(mul(b.in(b.op(silu(b.in(gate)))), b.in(up)));
  return b.sum(x1, b.product(a, b.parameter(prefix + "down", {s.hidden, s.mlp})));
}

// One layer over x alone: its first norm makes its own row statistics.
inline void llama_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden}, b.storage);
  b.wants_gradient(x, "d_x");
  b.seed(llama_layer(b, x, {}, s, rope_tables(b.graph, s), ""), "out");
}

// One layer between two others: its first norm's reciprocal comes with x, the next one's goes out
// with the result.
inline void llama_layer_alone(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden}, b.storage);
  const Value r = rms_reciprocal(x, 1e-5);
  b.given.push_back({"r", r});
  b.wants_gradient(x, "d_x");
  const Value out = llama_layer(b, x, r, s, rope_tables(b.graph, s), "");
  b.seed(out, "out");
  b.request.outputs.push_back({"r_out", rms_reciprocal(out, 1e-5)});
}

// `layers` layers between an embedding and a head with its loss; the head may be the embedding's
// table.
inline void llama_model(Block& b, int layers, bool tied, const LlamaSizes& s = {}) {
  const Value ids = b.graph.table("ids", {"M", 1}, DType::i32);
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const RopeTables tables = rope_tables(b.graph, s);
  const Value embed = b.parameter("embed", {s.vocab, s.hidden});
  Value x = b.op(embedding(embed, ids));
  for (int i = 0; i < layers; ++i)
    x = llama_layer(b, x, {}, s, tables, "l" + std::to_string(i) + ".");
  const Value h = b.op(rms_norm(b.in(x), b.parameter("final_norm", {1, s.hidden}), 1e-5));
  const Value logits = b.product(h, tied ? embed : b.parameter("head", {s.vocab, s.hidden}));
  const CrossEntropy loss = cross_entropy(b.in(logits), targets);
  b.request.outputs.push_back({"loss", loss.mean});
  b.request.outputs.push_back({"loss_rows", loss.rows});
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

inline void gpt2_model(Block& b, int layers, const LlamaSizes& s = {}) {
  const Value ids = b.graph.table("ids", {"M", 1}, DType::i32);
  const Value position = b.graph.table("position", {"M", 1}, DType::i32);
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const int64_t d = s.hidden;
  const Value embed = b.parameter("embed", {s.vocab, d});
  const Value positions = b.parameter("positions", {16, d});
  Value x = b.sum(b.op(embedding(embed, ids)), b.op(embedding(positions, position)));
  auto norm = [&](Value of, const std::string& name) {
    const Value w = b.parameter(name + ".w", {1, d});
    return b.op(layer_norm(b.in(of), w, b.parameter(name + ".b", {1, d}), 1e-5));
  };
  auto dense = [&](Value of, const std::string& name, int64_t cols) {
    const Value w = b.parameter(name + ".w", {of.shape().cols, cols});
    return b.product(of, w, b.parameter(name + ".b", {1, cols}));
  };
  for (int i = 0; i < layers; ++i) {
    const std::string p = "h" + std::to_string(i) + ".";
    const Value z = dense(norm(x, p + "ln1"), p + "attn", 3 * d);
    auto part = [&](int64_t which) { return slice_columns(z, which * d, d); };
    const AttentionOptions options{
        .heads = s.heads, .kv_heads = s.heads, .head_dim = d / s.heads, .sequence = s.sequence};
    const Value y = b.op(attention(part(0), part(1), part(2), options));
    const Value x1 = b.sum(x, dense(y, p + "proj", d));
    const Value a = b.op(gelu_tanh(b.in(dense(norm(x1, p + "ln2"), p + "fc", s.mlp))));
    x = b.sum(x1, dense(a, p + "out", d));
  }
  const Value logits = b.product(norm(x, "lnf"), embed);
  const CrossEntropy loss = cross_entropy(b.in(logits), targets);
  b.request.outputs.push_back({"loss", loss.mean});
  b.request.outputs.push_back({"loss_rows", loss.rows});
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

// Attention and MLP side by side from one norm with (1 + w), GEGLU.
inline void parallel_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden}, b.storage);
  b.wants_gradient(x, "d_x");
  const RopeTables tables = rope_tables(b.graph, s);
  const int64_t d = s.heads * s.head_dim;
  const Value h = b.op(rms_norm(b.in(x), b.parameter("norm", {1, s.hidden}), 1e-5, 1));
  auto rotated = [&](const char* name) {
    const Value w = b.parameter(name, {d, s.hidden});
    return b.op(rope(b.in(b.product(h, w)), tables, s.heads, s.head_dim));
  };
  const Value q = rotated("q");
  const Value k = rotated("k");
  const Value v = b.product(h, b.parameter("v", {d, s.hidden}));
  const AttentionOptions options{
      .heads = s.heads, .kv_heads = s.heads, .head_dim = s.head_dim, .sequence = s.sequence};
  const Value y = b.op(attention(b.in(q), b.in(k), b.in(v), options));
  const Value gate = b.product(h, b.parameter("gate", {s.mlp, s.hidden}));
  const Value up = b.product(h, b.parameter("up", {s.mlp, s.hidden}));
  const Value a = b.op(mul(b.in(b.op(gelu_tanh(b.in(gate)))), b.in(up)));
  const Value of_y = b.product(y, b.parameter("o", {s.hidden, d}));
  const Value of_a = b.product(a, b.parameter("down", {s.hidden, s.mlp}));
  b.seed(b.sum(b.sum(x, of_y), of_a), "out");
}

// A norm before and after the MLP (Gemma's sandwich).
inline void sandwich_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden}, b.storage);
  b.wants_gradient(x, "d_x");
  const Value h = b.op(rms_norm(b.in(x), b.parameter("before", {1, s.hidden}), 1e-5, 1));
  const Value gate = b.product(h, b.parameter("gate", {s.mlp, s.hidden}));
  const Value up = b.product(h, b.parameter("up", {s.mlp, s.hidden}));
  const Value a = b.op(mul(b.in(b.op(silu(b.in(gate)))), b.in(up)));
  const Value y = b.product(a, b.parameter("down", {s.hidden, s.mlp}));
  const Value after = b.op(rms_norm(b.in(y), b.parameter("after", {1, s.hidden}), 1e-5, 1));
  b.seed(b.sum(x, after), "out");
}

// A product reduced along both dimensions and whole, and scaled by what that gives.
inline void reductions_of_product(Block& b, PartialKind kind) {
  const Value x = b.graph.input("x", {"M", 72}, b.storage);
  const Value y = linear(x, b.graph.parameter("w", {72, 72}, b.storage));
  const Value rows = row_reduce(y, kind);
  const Value columns = col_reduce(y, kind);
  b.request.outputs.push_back({"rows", rows});
  b.request.outputs.push_back({"columns", columns});
  b.request.outputs.push_back({"whole", row_reduce(columns, kind)});
  b.request.outputs.push_back({"of_rows", col_reduce(rows, kind)});
  b.request.outputs.push_back({"scaled", y * rsqrt(rows * rows + 1.0)});
  b.request.outputs.push_back({"apart", y - rows});
}

// Random values for every input; indices below `limit`, some targets ignored.
inline std::map<std::string, std::vector<double>> random_inputs(const Graph& graph,
                                                                const DimValues& sizes,
                                                                uint64_t seed, int64_t limit = 9) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, std::vector<double>> inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op != Op::input) continue;
    std::vector<double>& data = inputs[n.name];
    data.resize(static_cast<size_t>(n.shape.rows.evaluate(sizes) * n.shape.cols.evaluate(sizes)));
    for (double& x : data) {
      x = n.dtype == DType::i32 ? static_cast<double>(random() % static_cast<uint64_t>(limit))
                                : normal(random);
      if (n.name == "targets" && random() % 4 == 0) x = -100;
    }
  }
  return inputs;
}

}  // namespace coda
