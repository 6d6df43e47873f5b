// SPDX-License-Identifier: Apache-2.0
// Models of any number of equal layers, in the ways in which layers are joined to the residual
// stream: with a norm before each branch (pre-norm), before and after (sandwich, Gemma 2), after
// the sum (post-norm), with both branches beside one another (parallel), and with centred norms and
// biases before each branch (GPT-2).
#pragma once

#include <string>

#include "plan/blocks.h"

namespace coda {

enum class Residual { pre_norm, sandwich, post_norm, parallel, gpt2 };

// The sizes with which tests plan deep models.
inline const LlamaSizes kDeepSizes{.hidden = 1024,
                                   .heads = 16,
                                   .kv_heads = 4,
                                   .head_dim = 64,
                                   .mlp = 2816,
                                   .vocab = 32768,
                                   .sequence = 1024};

inline std::string name_of(Residual kind) {
  switch (kind) {
    case Residual::pre_norm: return "pre_norm";
    case Residual::sandwich: return "sandwich";
    case Residual::post_norm: return "post_norm";
    case Residual::parallel: return "parallel";
    case Residual::gpt2: return "gpt2";
  }
  return "";
}

inline void deep_model(Block& b, Residual kind, int layers, const LlamaSizes& s = {}) {
  const Value ids = b.graph.table("ids", {"M", 1}, DType::i32);
  const Value targets = b.graph.table("targets", {"M", 1}, DType::i32);
  const RopeTables tables = rope_tables(b.graph, s);
  Value x = embedding(b.parameter("embed", {s.vocab, s.hidden}), ids);
  for (int i = 0; i < layers; ++i) {
    const std::string p = "l" + std::to_string(i) + ".";
    const auto norm = [&](Value of, const char* name) {
      return rms_norm(of, b.parameter(p + name, {1, s.hidden}), 1e-5);
    };
    const auto dense = [&](Value of, const char* name, int64_t cols) {
      return linear(of, b.parameter(p + name, {cols, of.shape().cols}));
    };
    const auto attention_of = [&](Value h) {
      const Value q = rope(dense(h, "q", s.heads * s.head_dim), tables, s.heads, s.head_dim);
      const Value k = rope(dense(h, "k", s.kv_heads * s.head_dim), tables, s.kv_heads, s.head_dim);
      const Value v = dense(h, "v", s.kv_heads * s.head_dim);
      const AttentionOptions options{
          .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .sequence = s.sequence};
      return dense(attention(q, k, v, options), "o", s.hidden);
    };
    const auto mlp_of = [&](Value h) {
      return dense(swiglu(dense(h, "gate", s.mlp), dense(h, "up", s.mlp)), "down", s.hidden);
    };
    switch (kind) {
      case Residual::pre_norm:
        x = x + attention_of(norm(x, "n1"));
        x = x + mlp_of(norm(x, "n2"));
        break;
      case Residual::sandwich:
        x = x + norm(attention_of(norm(x, "n1")), "n2");
        x = x + norm(mlp_of(norm(x, "n3")), "n4");
        break;
      case Residual::post_norm:
        x = norm(x + attention_of(x), "n1");
        x = norm(x + mlp_of(x), "n2");
        break;
      case Residual::gpt2: {
        const auto centred = [&](Value of, const std::string& name) {
          return layer_norm(of, b.parameter(p + name, {1, s.hidden}),
                            b.parameter(p + name + "_bias", {1, s.hidden}), 1e-5);
        };
        const auto biased = [&](Value of, const std::string& name, int64_t cols) {
          return dense(of, name.c_str(), cols) + b.parameter(p + name + "_bias", {1, cols});
        };
        const AttentionOptions options{
            .heads = s.heads, .kv_heads = s.heads, .head_dim = s.head_dim, .sequence = s.sequence};
        const Value h = centred(x, "n1");
        const int64_t width = s.heads * s.head_dim;
        // Without a bias of k, whose gradient is zero: each score of a row gets the same from it.
        const Value a =
            attention(biased(h, "q", width), dense(h, "k", width), biased(h, "v", width), options);
        x = x + biased(a, "o", s.hidden);
        x = x + biased(gelu_tanh(biased(centred(x, "n2"), "up", s.mlp)), "down", s.hidden);
        break;
      }
      case Residual::parallel: {
        const Value h = norm(x, "n1");
        x = x + attention_of(h) + mlp_of(h);
        break;
      }
    }
  }
  const Value h = rms_norm(x, b.parameter("final_norm", {1, s.hidden}), 1e-5);
  const CrossEntropy loss =
      cross_entropy(linear(h, b.parameter("head", {s.vocab, s.hidden})), targets);
  b.request.outputs = {{"loss", loss.mean}, {"loss_rows", loss.rows}};
  b.request.seeds.push_back({loss.mean, b.graph.input("scale", {1, 1})});
}

}  // namespace coda
