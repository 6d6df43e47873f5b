// SPDX-License-Identifier: Apache-2.0
// The builders of coda/graph.h and coda/builders.h as functions of values.
#include "coda/builders.h"

#include <optional>

#include "bindings.h"
#include "coda/elementwise.h"
#include "coda/error.h"

namespace coda::python {
namespace {

using Number = std::variant<GraphValue, double>;

// The graph of the first of the operands that is a value.
std::shared_ptr<Graph> graph_of(const char* op, const std::vector<Number>& operands) {
  for (const Number& operand : operands)
    if (const auto* value = std::get_if<GraphValue>(&operand)) return value->graph;
  throw Error(std::string(op) + ": give at least one value of a graph");
}

Value as_value(const Number& operand, const std::shared_ptr<Graph>& graph) {
  if (const auto* value = std::get_if<GraphValue>(&operand)) return value->value();
  return graph->constant(std::get<double>(operand));
}

GraphValue elementwise_by_text(const std::string& name, const std::vector<Number>& operands) {
  const std::optional<Elementwise> fn = elementwise_by_name(name);
  require(fn.has_value(), "there is no elementwise operation '" + name + "'");
  const std::shared_ptr<Graph> graph = graph_of(name.c_str(), operands);
  std::vector<Value> values;
  for (const Number& operand : operands) values.push_back(as_value(operand, graph));
  return {graph, elementwise(*fn, values).id};
}

// One function of values for each builder that takes one or two and nothing else.
void bind_plain(nb::module_& module) {
  using Unary = Value (*)(Value, Where);
  const auto unary = [&](const char* name, Unary function, const char* doc) {
    module.def(
        name,
        [function](const GraphValue& x) {
          return GraphValue{x.graph, function(x.value(), Where::current()).id};
        },
        nb::arg("x"), doc);
  };
  unary("row_sum", &row_sum, "[M, N] -> [M, 1]");
  unary("col_sum", &col_sum, "[M, N] -> [1, N]");
  unary("row_mean", &row_mean, "[M, N] -> [M, 1]");
  unary("row_logsumexp", &row_logsumexp, "[M, N] -> [M, 1]");
  unary("row_m2", &row_m2, "[M, N] -> [M, 1]: the sum of the squares of x - row_mean(x)");
  unary("transpose", &transpose, "Of a vector: [M, 1] <-> [1, M]");
  using Binary = Value (*)(Value, Value, Where);
  const auto binary = [&](const char* name, Binary function, const char* a, const char* b,
                          const char* doc) {
    module.def(
        name,
        [function](const GraphValue& x, const GraphValue& y) {
          return GraphValue{x.graph, function(x.value(), y.value(), Where::current()).id};
        },
        nb::arg(a), nb::arg(b), doc);
  };
  binary("linear", &linear, "x", "w", "x[M, K] · w[N, K]ᵀ, as torch.nn.Linear");
  binary("conv1d", &conv1d, "x", "w", "x[M, K] · w[K, N], as GPT-2 stores its weights");
  binary("swiglu", &swiglu, "gate", "up", "silu(gate) ⊙ up");
  binary("geglu", &geglu, "gate", "up", "gelu(gate) ⊙ up");
  binary("select_column", &select_column, "x", "index",
         "x [M, N], index [M, 1] -> [M, 1]: x[i, index[i]], 0 where there is no such column");
  binary("gather_rows", &gather_rows, "table", "index", "table [T, N], index [M, 1] -> [M, N]");
}

}  // namespace

void bind_builders(nb::module_& module) {
  bind_plain(module);
  module.def("elementwise", &elementwise_by_text, nb::arg("name"), nb::arg("operands"),
             "The operation of that name (docs/program-text.md lists them) of values and numbers.");
  module.def(
      "group_sum",
      [](const GraphValue& x, const PythonDim& group) {
        return GraphValue{x.graph, group_sum(x.value(), dim_of(group)).id};
      },
      nb::arg("x"), nb::arg("group"), "Sums of each `group` adjacent columns.");
  module.def(
      "group_repeat",
      [](const GraphValue& x, const PythonDim& group) {
        return GraphValue{x.graph, group_repeat(x.value(), dim_of(group)).id};
      },
      nb::arg("x"), nb::arg("group"), "Each column `group` times: the adjoint of group_sum.");
  module.def(
      "repeat_columns",
      [](const GraphValue& x, int64_t repeat) {
        return GraphValue{x.graph, repeat_columns(x.value(), repeat).id};
      },
      nb::arg("x"), nb::arg("repeat"), "x side by side, `repeat` times.");
  module.def(
      "slice_columns",
      [](const GraphValue& x, const PythonDim& offset, const PythonDim& cols) {
        return GraphValue{x.graph, slice_columns(x.value(), dim_of(offset), dim_of(cols)).id};
      },
      nb::arg("x"), nb::arg("offset"), nb::arg("cols"));
  module.def(
      "split_pair",
      [](const GraphValue& x, const PythonDim& group, int which) {
        return GraphValue{x.graph, split_pair(x.value(), dim_of(group), which).id};
      },
      nb::arg("x"), nb::arg("group"), nb::arg("which"),
      "First (0) or second (1) members of the pairs (j, j + group / 2) of each `group` columns.");
  module.def(
      "merge_pairs",
      [](const GraphValue& first, const GraphValue& second, const PythonDim& group) {
        return GraphValue{first.graph,
                          merge_pairs(first.value(), second.value(), dim_of(group)).id};
      },
      nb::arg("first"), nb::arg("second"), nb::arg("group"), "The inverse of split_pair.");
  module.def(
      "concat_columns",
      [](const std::vector<GraphValue>& parts) {
        require(!parts.empty(), "concat_columns: give at least one value");
        std::vector<Value> values;
        for (const GraphValue& part : parts) values.push_back(part.value());
        return GraphValue{parts[0].graph, concat_columns(values).id};
      },
      nb::arg("parts"));
  module.def(
      "rms_reciprocal",
      [](const GraphValue& x, double eps) {
        return GraphValue{x.graph, rms_reciprocal(x.value(), eps).id};
      },
      nb::arg("x"), nb::arg("eps"), "rsqrt(mean of squares of each row + eps), [M, 1].");
  module.def(
      "rms_norm",
      [](const GraphValue& x, const GraphValue& weight, double eps, double offset) {
        return GraphValue{x.graph, rms_norm(x.value(), weight.value(), eps, offset).id};
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("offset") = 0.0,
      "x ⊙ rms_reciprocal(x) ⊙ (offset + weight); weight [1, D].");
  module.def(
      "layer_norm",
      [](const GraphValue& x, const GraphValue& weight, const GraphValue& bias, double eps) {
        return GraphValue{x.graph, layer_norm(x.value(), weight.value(), bias.value(), eps).id};
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias"), nb::arg("eps"));
  module.def(
      "soft_cap",
      [](const GraphValue& x, double cap) {
        return GraphValue{x.graph, soft_cap(x.value(), cap).id};
      },
      nb::arg("x"), nb::arg("cap"), "cap * tanh(x / cap)");
  module.def(
      "rope",
      [](const GraphValue& x, const GraphValue& cos, const GraphValue& sin,
         const GraphValue& position, int64_t heads, int64_t head_dim, bool half) {
        const RopeTables tables{cos.value(), sin.value(), position.value()};
        return GraphValue{x.graph, rope(x.value(), tables, heads, head_dim, half).id};
      },
      nb::arg("x"), nb::arg("cos"), nb::arg("sin"), nb::arg("position"), nb::arg("heads"),
      nb::arg("head_dim"), nb::arg("half") = true,
      "Rotates pairs of x [M, heads * head_dim] by row position[i] of cos and sin "
      "[positions, head_dim / 2]; half: pairs (j, j + head_dim / 2) of a head, else (2j, 2j + 1).");
  module.def(
      "attention",
      [](const GraphValue& q, const GraphValue& k, const GraphValue& v, const PythonDim& sequence,
         int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t value_dim, bool causal,
         int64_t window, std::optional<double> scale, double soft_cap,
         const std::optional<GraphValue>& documents, const std::optional<GraphValue>& sinks) {
        const AttentionOptions options{.heads = heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .value_dim = value_dim,
                                       .sequence = dim_of(sequence),
                                       .causal = causal,
                                       .window = window,
                                       .scale = scale,
                                       .soft_cap = soft_cap,
                                       .documents = documents ? documents->value() : Value{},
                                       .sinks = sinks ? sinks->value() : Value{}};
        return GraphValue{q.graph, attention(q.value(), k.value(), v.value(), options).id};
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("sequence"), nb::arg("heads"),
      nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("value_dim") = 0, nb::arg("causal") = true,
      nb::arg("window") = 0, nb::arg("scale") = nb::none(), nb::arg("soft_cap") = 0.0,
      nb::arg("documents") = nb::none(), nb::arg("sinks") = nb::none(),
      "softmax(scores)·v over sequences of `sequence` rows: q [M, heads * head_dim], "
      "k [M, kv_heads * head_dim], v [M, kv_heads * value_dim] -> [M, heads * value_dim]. A score "
      "is q·k times `scale` (default: head_dim ** -0.5), then soft_cap * tanh(score / soft_cap) if "
      "soft_cap is not 0. causal: row i sees rows j <= i, and with a window only j > i - window. "
      "documents: i32 [M, 2], row i sees only rows from documents[i, 0] to in front of "
      "documents[i, 1] of its sequence; both ascend. With [M, 4] the rows from documents[i, 2] to "
      "in "
      "front of documents[i, 3] are those that see row i. sinks: f32 [1, heads], one more score of "
      "each "
      "row in softmax, without a value.");
  module.def(
      "cross_entropy",
      [](const GraphValue& logits, const GraphValue& targets, int64_t ignore_index,
         double label_smoothing, double z_loss) {
        const CrossEntropy loss =
            cross_entropy(logits.value(), targets.value(), {ignore_index, label_smoothing, z_loss});
        return std::pair(GraphValue{logits.graph, loss.rows.id},
                         GraphValue{logits.graph, loss.mean.id});
      },
      nb::arg("logits"), nb::arg("targets"), nb::arg("ignore_index") = -100,
      nb::arg("label_smoothing") = 0.0, nb::arg("z_loss") = 0.0,
      "The loss of each row [M, 1], and their mean [1, 1] over the rows that count.");
}

}  // namespace coda::python
