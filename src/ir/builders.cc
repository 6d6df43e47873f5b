// SPDX-License-Identifier: Apache-2.0
// Norms, gates, RoPE and cross-entropy as expressions over primitives:
// nothing here is known to any pass.
#include "coda/builders.h"

#include <cmath>

#include "ir/check.h"

namespace coda {

Value rms_reciprocal(Value x, double eps, Where where) {
  return rsqrt(row_mean(mul(x, x, where), where) + eps, where);
}

Value rms_norm(Value x, Value weight, double eps, double offset, Where where) {
  graph_of("rms_norm", {x, weight}, where);
  check(weight.shape() == Shape{1, x.shape().cols}, "rms_norm", {x, weight},
        "the weight must be [1, columns of x]", where);
  return mul(mul(x, rms_reciprocal(x, eps, where), where), weight + offset, where);
}

Value layer_norm(Value x, Value weight, Value bias, double eps, Where where) {
  graph_of("layer_norm", {x, weight, bias}, where);
  check(weight.shape() == Shape{1, x.shape().cols} && bias.shape() == weight.shape(), "layer_norm",
        {x, weight, bias}, "weight and bias must be [1, columns of x]", where);
  const Value count = x.graph->reciprocal_dim(x.shape().cols);
  const Value deviation = rsqrt(mul(row_m2(x, where), count) + eps, where);
  const Value deviations = sub(x, row_mean(x, where), where);
  return add(mul(mul(deviations, deviation, where), weight, where), bias, where);
}

Value swiglu(Value gate, Value up, Where where) { return mul(silu(gate, where), up, where); }
Value geglu(Value gate, Value up, Where where) { return mul(gelu_tanh(gate, where), up, where); }

Value rope(Value x, const RopeTables& tables, int64_t heads, int64_t head_dim, bool half,
           Where where) {
  graph_of("rope", {x, tables.cos, tables.sin, tables.position}, where);
  check(heads >= 1 && head_dim >= 2 && head_dim % 2 == 0 && x.shape().cols.is(heads * head_dim),
        "rope", {x},
        "columns must be " + std::to_string(heads) + " heads of " + std::to_string(head_dim) +
            " (an even size)",
        where);
  check(tables.cos.shape() == tables.sin.shape() && tables.cos.shape().cols.is(head_dim / 2),
        "rope", {x, tables.cos, tables.sin}, "the tables must be [positions, head_dim / 2]", where);
  check(tables.position.shape() == Shape{x.shape().rows, 1}, "rope", {x, tables.position},
        "the position must be one value a row", where);
  const Dim group = half ? head_dim : int64_t{2};
  const Value a = split_pair(x, group, 0, where);
  const Value b = split_pair(x, group, 1, where);
  const Value cos = repeat_columns(gather_rows(tables.cos, tables.position, where), heads, where);
  const Value sin = repeat_columns(gather_rows(tables.sin, tables.position, where), heads, where);
  return merge_pairs(a * cos - b * sin, a * sin + b * cos, group, where);
}

Value soft_cap(Value x, double cap, Where where) {
  Graph& graph = graph_of("soft_cap", {x}, where);
  check(cap > 0, "soft_cap", {x}, "the cap must be above 0", where);
  return mul(tanh(mul(x, graph.constant(1 / cap), where), where), graph.constant(cap), where);
}

CrossEntropy cross_entropy(Value logits, Value targets, const CrossEntropyOptions& options,
                           Where where) {
  Graph& graph = graph_of("cross_entropy", {logits, targets}, where);
  check(targets.shape() == Shape{logits.shape().rows, 1}, "cross_entropy", {logits, targets},
        "targets must be one value a row", where);
  check(options.label_smoothing >= 0 && options.label_smoothing < 1, "cross_entropy",
        {logits, targets}, "label_smoothing must lie in [0, 1)", where);
  check(options.z_loss >= 0, "cross_entropy", {logits, targets}, "z_loss must not be negative",
        where);
  const Value zero = graph.constant(0);
  const Value counts =
      sub(graph.constant(1),
          equal(targets, graph.constant(static_cast<double>(options.ignore_index))), where);
  const Value of_target = select_column(logits, targets, where);
  const Value lse = row_logsumexp(logits, where);
  // -log p[j] = lse - l[j]: of the target, and on average over all columns.
  Value loss = sub(lse, of_target, where);
  if (options.label_smoothing > 0) {
    const Value of_all = sub(lse, row_mean(logits, where), where);
    loss = add(mul(loss, graph.constant(1 - options.label_smoothing), where),
               mul(of_all, graph.constant(options.label_smoothing), where), where);
  }
  if (options.z_loss > 0)
    loss = add(loss, mul(mul(lse, lse, where), graph.constant(options.z_loss), where), where);
  CrossEntropy result;
  result.rows = select(counts, loss, zero, where);
  // NaN where no row counts, and nothing flows back from there: gradients are 0, as PyTorch has it.
  const Value count = col_sum(counts, where);
  const Value divisor = maximum(count, graph.constant(1), where);
  result.mean = add(div(col_sum(result.rows, where), divisor, where),
                    mul(recip(count, where), zero, where), where);
  return result;
}

}  // namespace coda
