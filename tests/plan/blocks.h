// SPDX-License-Identifier: Apache-2.0
// Graphs of Transformer blocks with their compile requests, for tests of plans.
#pragma once

#include <random>

#include "coda/builders.h"
#include "coda/compile.h"

namespace coda {

struct Block {
  Graph graph;
  CompileRequest request;

  Value parameter(const std::string& name, Shape shape) {
    const Value v = graph.parameter(name, std::move(shape));
    request.gradients.push_back({v, "d_" + name});
    return v;
  }
  void wants_gradient(Value v, const std::string& name) { request.gradients.push_back({v, name}); }
  void seed(Value output, const std::string& name) {
    request.outputs.push_back({name, output});
    request.seeds.push_back({output, graph.input("d_" + name, output.shape())});
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
  const Value xn = r.graph != nullptr ? mul(mul(x, r), w1) : rms_norm(x, w1, 1e-5);
  const Value q = rope(linear(xn, b.parameter(prefix + "q", {q_cols, s.hidden})), rope_of, s.heads, s.head_dim);
  const Value k = rope(linear(xn, b.parameter(prefix + "k", {kv_cols, s.hidden})), rope_of, s.kv_heads, s.head_dim);
  const Value v = linear(xn, b.parameter(prefix + "v", {kv_cols, s.hidden}));
  const Value y = attention(q, k, v, {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim,
                                      .sequence = s.sequence});
  const Value x1 = x + linear(y, b.parameter(prefix + "o", {s.hidden, q_cols}));
  const Value h = rms_norm(x1, b.parameter(prefix + "post_norm", {1, s.hidden}), 1e-5);
  const Value gate = linear(h, b.parameter(prefix + "gate", {s.mlp, s.hidden}));
  const Value up = linear(h, b.parameter(prefix + "up", {s.mlp, s.hidden}));
  return x1 + linear(swiglu(gate, up), b.parameter(prefix + "down", {s.hidden, s.mlp}));
}

// One layer over x alone: its first norm makes its own row statistics.
inline void llama_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden});
  b.wants_gradient(x, "d_x");
  b.seed(llama_layer(b, x, {}, s, rope_tables(b.graph, s), ""), "out");
}

// `layers` layers between an embedding and a head with its loss; the head may be the embedding's table.
inline void llama_model(Block& b, int layers, bool tied, const LlamaSizes& s = {}) {
  const Value ids = b.graph.table("ids", {"M", 1}, DType::i32);
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const RopeTables tables = rope_tables(b.graph, s);
  const Value embed = b.parameter("embed", {s.vocab, s.hidden});
  Value x = embedding(embed, ids);
  for (int i = 0; i < layers; ++i) x = llama_layer(b, x, {}, s, tables, "l" + std::to_string(i) + ".");
  const Value h = rms_norm(x, b.parameter("final_norm", {1, s.hidden}), 1e-5);
  const Value logits = linear(h, tied ? embed : b.parameter("head", {s.vocab, s.hidden}));
  const CrossEntropy loss = cross_entropy(logits, targets);
  b.request.outputs.push_back({"loss", loss.mean});
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

inline void gpt2_model(Block& b, int layers, const LlamaSizes& s = {}) {
  const Value ids = b.graph.table("ids", {"M", 1}, DType::i32);
  const Value position = b.graph.table("position", {"M", 1}, DType::i32);
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const int64_t d = s.hidden;
  const Value embed = b.parameter("embed", {s.vocab, d});
  Value x = embedding(embed, ids) + embedding(b.parameter("positions", {16, d}), position);
  for (int i = 0; i < layers; ++i) {
    const std::string p = "h" + std::to_string(i) + ".";
    const Value h = layer_norm(x, b.parameter(p + "ln1.w", {1, d}), b.parameter(p + "ln1.b", {1, d}), 1e-5);
    const Value z = conv1d(h, b.parameter(p + "attn.w", {d, 3 * d})) + b.parameter(p + "attn.b", {1, 3 * d});
    const Value y = attention(slice_columns(z, 0, d), slice_columns(z, d, d), slice_columns(z, 2 * d, d),
                              {.heads = s.heads, .kv_heads = s.heads, .head_dim = d / s.heads,
                               .sequence = s.sequence});
    const Value x1 = x + (conv1d(y, b.parameter(p + "proj.w", {d, d})) + b.parameter(p + "proj.b", {1, d}));
    const Value h2 = layer_norm(x1, b.parameter(p + "ln2.w", {1, d}), b.parameter(p + "ln2.b", {1, d}), 1e-5);
    const Value a = gelu_tanh(conv1d(h2, b.parameter(p + "fc.w", {d, s.mlp})) + b.parameter(p + "fc.b", {1, s.mlp}));
    x = x1 + (conv1d(a, b.parameter(p + "out.w", {s.mlp, d})) + b.parameter(p + "out.b", {1, d}));
  }
  const Value h = layer_norm(x, b.parameter("lnf.w", {1, d}), b.parameter("lnf.b", {1, d}), 1e-5);
  const CrossEntropy loss = cross_entropy(linear(h, embed), targets);
  b.request.outputs.push_back({"loss", loss.mean});
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

// Attention and MLP side by side from one norm with (1 + w), GEGLU.
inline void parallel_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden});
  b.wants_gradient(x, "d_x");
  const RopeTables tables = rope_tables(b.graph, s);
  const int64_t d = s.heads * s.head_dim;
  const Value h = rms_norm(x, b.parameter("norm", {1, s.hidden}), 1e-5, 1);
  const Value q = rope(linear(h, b.parameter("q", {d, s.hidden})), tables, s.heads, s.head_dim);
  const Value k = rope(linear(h, b.parameter("k", {d, s.hidden})), tables, s.heads, s.head_dim);
  const Value v = linear(h, b.parameter("v", {d, s.hidden}));
  const Value y = attention(q, k, v, {.heads = s.heads, .kv_heads = s.heads, .head_dim = s.head_dim,
                                      .sequence = s.sequence});
  const Value a = geglu(linear(h, b.parameter("gate", {s.mlp, s.hidden})), linear(h, b.parameter("up", {s.mlp, s.hidden})));
  const Value out = x + linear(y, b.parameter("o", {s.hidden, d})) + linear(a, b.parameter("down", {s.hidden, s.mlp}));
  b.seed(out, "out");
}

// A norm before and after the MLP (Gemma's sandwich).
inline void sandwich_block(Block& b, const LlamaSizes& s = {}) {
  const Value x = b.graph.input("x", {"M", s.hidden});
  b.wants_gradient(x, "d_x");
  const Value h = rms_norm(x, b.parameter("before", {1, s.hidden}), 1e-5, 1);
  const Value a = swiglu(linear(h, b.parameter("gate", {s.mlp, s.hidden})), linear(h, b.parameter("up", {s.mlp, s.hidden})));
  const Value y = linear(a, b.parameter("down", {s.hidden, s.mlp}));
  b.seed(x + rms_norm(y, b.parameter("after", {1, s.hidden}), 1e-5, 1), "out");
}

// Random values for every input; indices below `limit`, some targets ignored.
inline std::map<std::string, std::vector<double>> random_inputs(const Graph& graph, const DimValues& sizes, uint64_t seed,
                                                                int64_t limit = 9) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, std::vector<double>> inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op != Op::input) continue;
    std::vector<double>& data = inputs[n.name];
    data.resize(static_cast<size_t>(n.shape.rows.evaluate(sizes) * n.shape.cols.evaluate(sizes)));
    for (double& x : data) {
      x = n.dtype == DType::i32 ? static_cast<double>(random() % static_cast<uint64_t>(limit)) : normal(random);
      if (n.name == "targets" && random() % 4 == 0) x = -100;
    }
  }
  return inputs;
}

}  // namespace coda
