// SPDX-License-Identifier: Apache-2.0
// Attention as an operation: what it is called with, its shapes, its gradient. The float64
// definition, the CPU's kernels and the GPU's are in attention_*.cc.
#include "operations/attention.h"

#include <cmath>

#include "coda/builders.h"
#include "coda/error.h"
#include "operations/builtin.h"

namespace coda {
namespace {

constexpr size_t kOperands = 3, kBackwardOperands = 6;  // without optional ones

std::vector<OperationResult> results(const OperationSettings& settings,
                                     const std::vector<Shape>& in) {
  const AttentionShape a = attention_shape(settings, in[0].rows);
  const Dim& rows = in[0].rows;
  const auto must_be = [](const char* name, const Shape& shape, const Shape& wanted) {
    require(shape == wanted,
            std::string(name) + " must be " + wanted.text() + ", not " + shape.text());
  };
  const Shape y{rows, a.heads * a.value_dim};
  must_be("q", in[0], {rows, a.heads * a.head_dim});
  must_be("k", in[1], {rows, a.kv_heads * a.head_dim});
  must_be("v", in[2], {rows, a.kv_heads * a.value_dim});
  if (a.has_documents)
    must_be("documents", in[a.documents(in.size())], {rows, a.has_key_spans ? 4 : 2});
  if (a.has_sinks) must_be("sinks", in[a.sinks(in.size())], {1, a.heads});
  if (in.size() < kBackwardOperands) return {{y}, {{rows, a.heads}, true}};
  must_be("y", in[3], y);
  must_be("lse", in[4], {rows, a.heads});
  must_be("dy", in[5], y);
  std::vector<OperationResult> gradients{{in[0]}, {in[1]}, {in[2]}};
  if (a.has_sinks) gradients.push_back({{1, a.heads}, true});
  return gradients;
}

std::vector<Value> adjoint(const OperationSettings& settings, const std::vector<Value>& in,
                           const std::vector<Value>& results, const std::vector<Value>& gradients) {
  require(gradients[1].graph == nullptr,
          "attention: its log-sum-exp is not differentiable; use the output only");
  std::vector<Value> operands{in[0], in[1], in[2], results[0], results[1], gradients[0]};
  operands.insert(operands.end(), in.begin() + kOperands, in.end());
  const std::vector<Value> made =
      opaque_call("attention_backward", operands, settings.attributes, settings.sizes);
  std::vector<Value> of_operands(made.begin(), made.begin() + kOperands);
  of_operands.resize(in.size());  // documents have no gradient
  if (made.size() > kOperands) of_operands.back() = made.back();
  return of_operands;
}

Operation common() {
  Operation operation;
  operation.attributes = {{"heads", {}},      {"kv_heads", {}}, {"head_dim", {}},
                          {"value_dim", 0.0}, {"scale", {}},    {"soft_cap", 0.0},
                          {"causal", {}},     {"window", 0.0},  {"documents", 0.0},
                          {"key_spans", 0.0}, {"sinks", 0.0}};
  operation.optional_operands = {"documents", "sinks"};
  operation.sizes = {"sequence"};
  operation.results = results;
  return operation;
}

}  // namespace

AttentionShape attention_shape(const OperationSettings& settings, const Dim& rows) {
  AttentionShape shape;
  shape.heads = settings.count("heads");
  shape.kv_heads = settings.count("kv_heads");
  shape.head_dim = settings.count("head_dim");
  shape.value_dim = settings.count("value_dim", 0);
  if (shape.value_dim == 0) shape.value_dim = shape.head_dim;
  shape.scale = settings.attribute("scale");
  shape.soft_cap = settings.attribute("soft_cap");
  shape.causal = settings.attribute("causal") != 0;
  shape.window = settings.count("window", 0);
  shape.has_documents = settings.attribute("documents") != 0;
  shape.has_key_spans = settings.attribute("key_spans") != 0;
  shape.has_sinks = settings.attribute("sinks") != 0;
  require(shape.heads % shape.kv_heads == 0,
          std::to_string(shape.heads) + " heads are no multiple of " +
              std::to_string(shape.kv_heads) + " key-value heads");
  require(shape.soft_cap >= 0, "soft_cap must be positive, or 0 for none");
  require(shape.has_documents || !shape.has_key_spans,
          "key_spans=1 says that 'documents' has four columns, but the call has no documents");
  require(shape.window == 0 || shape.causal,
          "a window is of what lies before a token, so it needs causal attention");
  const Dim& sequence = settings.sizes.at("sequence");
  if (!sequence.is_constant() || !rows.is_constant()) return shape;
  shape.tokens = sequence.constant();
  require(shape.tokens > 0 && rows.constant() % shape.tokens == 0,
          rows.text() + " rows are no whole number of sequences of " + sequence.text() + " tokens");
  shape.sequences = rows.constant() / shape.tokens;
  return shape;
}

std::vector<TokenRange> sequences_as_documents(const AttentionShape& shape) {
  return std::vector<TokenRange>(shape.sequences * shape.tokens, {0, shape.tokens});
}

std::vector<TokenRange> checked_documents(
    const AttentionShape& shape, const std::function<int64_t(int64_t row, int64_t which)>& end) {
  std::vector<TokenRange> documents(shape.sequences * shape.tokens);
  for (int64_t row = 0; row < std::ssize(documents); ++row) {
    const TokenRange before = row % shape.tokens == 0 ? TokenRange{} : documents[row - 1];
    TokenRange& document = documents[row] = {end(row, 0), end(row, 1)};
    require(before.first <= document.first && document.first <= document.last &&
                before.last <= document.last && document.last <= shape.tokens,
            "attention: row " + std::to_string(row) + " of 'documents' is " +
                std::to_string(document.first) + ", " + std::to_string(document.last) +
                "; both ends must ascend within a sequence of " + std::to_string(shape.tokens) +
                " tokens");
  }
  return documents;
}

Operation attention_operation() {
  Operation operation = common();
  operation.name = "attention";
  operation.operands = {"q", "k", "v"};
  operation.adjoint = adjoint;
  operation.evaluate = evaluate_attention;
  operation.cpu = prepare_attention;
  operation.gpu = attention_kernels;
  return operation;
}

Operation attention_backward_operation() {
  Operation operation = common();
  operation.name = "attention_backward";
  operation.operands = {"q", "k", "v", "y", "lse", "dy"};
  operation.evaluate = evaluate_attention_backward;
  operation.cpu = prepare_attention_backward;
  operation.gpu = attention_backward_kernels;
  return operation;
}

Value attention(Value q, Value k, Value v, const AttentionOptions& o, Where where) {
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(o.head_dim)));
  std::vector<Value> operands{q, k, v};
  const bool has_documents = o.documents.graph != nullptr, has_sinks = o.sinks.graph != nullptr;
  const bool has_key_spans = has_documents && o.documents.shape().cols == Dim(4);
  if (has_documents) operands.push_back(o.documents);
  if (has_sinks) operands.push_back(o.sinks);
  return opaque_call("attention", operands,
                     {{"heads", static_cast<double>(o.heads)},
                      {"kv_heads", static_cast<double>(o.kv_heads)},
                      {"head_dim", static_cast<double>(o.head_dim)},
                      // Calls that mean the same are one: as many as the key's is the default.
                      {"value_dim", o.value_dim == o.head_dim ? 0 : double(o.value_dim)},
                      {"scale", scale},
                      {"soft_cap", o.soft_cap},
                      {"causal", o.causal ? 1.0 : 0.0},
                      {"window", static_cast<double>(o.window)},
                      {"documents", has_documents ? 1.0 : 0.0},
                      {"key_spans", has_key_spans ? 1.0 : 0.0},
                      {"sinks", has_sinks ? 1.0 : 0.0}},
                     {{"sequence", o.sequence}}, where)[0];
}

}  // namespace coda
