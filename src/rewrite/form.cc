// SPDX-License-Identifier: Apache-2.0
#include "rewrite/form.h"

#include <algorithm>

namespace coda {
namespace {

const Node& node_of(Value v) { return v.graph->node(v.id); }
bool is_call(Value v, Elementwise fn) {
  return node_of(v).op == Op::elementwise && node_of(v).fn == fn;
}
Value operand(Value v, size_t i) { return {v.graph, node_of(v).operands[i]}; }

Value times(Value a, Value b) { return a.graph == nullptr ? b : mul(a, b); }

// v ⊙ factors, where a constant that v carries joins the vector: one multiplication an element.
Value scale(Value v, Value factors) {
  const bool carries = is_call(v, Elementwise::mul) && v.shape().is_tensor() &&
                       node_of(operand(v, 1)).op == Op::constant &&
                       node_of(factors).op != Op::constant;
  return carries ? mul(operand(v, 0), mul(factors, operand(v, 1))) : mul(v, factors);
}

// select(c, s, 0) with a per-row c and a scalar s: a mask with a factor.
bool is_mask(Value v) {
  if (!is_call(v, Elementwise::select) || !v.shape().is_per_row()) return false;
  const Node& zero = node_of(operand(v, 2));
  return operand(v, 1).shape().is_scalar() && zero.op == Op::constant && zero.number == 0;
}

}  // namespace

void vector_factors(Value v, double& number, std::vector<Value>& atoms) {
  if (node_of(v).op == Op::constant) {
    number *= node_of(v).number;
  } else if (is_call(v, Elementwise::mul) && v.shape().is_vector()) {
    vector_factors(operand(v, 0), number, atoms);
    vector_factors(operand(v, 1), number, atoms);
  } else {
    atoms.push_back(v);
  }
}

Value product_of(Graph& graph, const std::vector<int>& factors) {
  Value product = graph.constant(1);
  for (int id : factors) product = mul(product, graph.value(id));
  return product;
}

Value value_of(const Term& term, Graph& graph) {
  if (term.row.graph == nullptr) return term.col.graph == nullptr ? graph.constant(1) : term.col;
  return term.col.graph == nullptr ? term.row : mul(term.row, term.col);
}

void multiply_constant(Form& form, double number) {
  if (number == 1) return;
  const Value c = form.core.graph->constant(number);
  form.core = mul(form.core, c);
  for (Term& t : form.inner) t.row = times(t.row, c);
  for (Term& t : form.outer) t.row = times(t.row, c);
  form.origin = -1;
}

void multiply(Form& form, Value atom) {
  form.origin = -1;
  if (atom.shape().is_per_column()) {
    form.core = mul(form.core, atom);
    for (Term& t : form.inner) t.col = times(t.col, atom);
    for (Term& t : form.outer) t.col = times(t.col, atom);
    return;
  }
  if (is_mask(atom) && !form.has_terms()) {
    form.core = select(operand(atom, 0), form.core, atom.graph->constant(0));
    double number = 1;
    std::vector<Value> scalars;
    vector_factors(operand(atom, 1), number, scalars);
    multiply_constant(form, number);
    for (Value s : scalars) multiply(form, s);
    return;
  }
  form.factors.insert(std::upper_bound(form.factors.begin(), form.factors.end(), atom.id), atom.id);
  for (Term& t : form.outer) t.row = times(t.row, atom);
}

Value value_of(const Form& form, const std::vector<int>& first) {
  Graph& graph = *form.core.graph;
  if (form.origin >= 0) return graph.value(form.origin);
  Value v = form.core;
  for (const Term& t : form.inner) v = add(v, value_of(t, graph));
  std::vector<int> early;
  std::vector<int> late;
  for (int id : form.factors) {
    (std::find(first.begin(), first.end(), id) != first.end() ? early : late).push_back(id);
  }
  // The early factors alone, so that the value that they make is the stored one wherever it is
  // read; a constant goes with the late ones.
  const bool carries = !early.empty() && is_call(v, Elementwise::mul) && v.shape().is_tensor() &&
                       node_of(operand(v, 1)).op == Op::constant;
  const Value number = carries ? operand(v, 1) : graph.constant(1);
  if (!early.empty()) v = mul(carries ? operand(v, 0) : v, product_of(graph, early));
  v = scale(v, mul(product_of(graph, late), number));
  for (const Term& t : form.outer) v = add(v, value_of(t, graph));
  return v;
}

Form peel(Value v) {
  std::vector<Value> atoms;
  double number = 1;
  Value core = v;
  while (is_call(core, Elementwise::mul) && operand(core, 0).shape() == core.shape() &&
         operand(core, 1).shape().is_vector()) {
    vector_factors(operand(core, 1), number, atoms);
    core = operand(core, 0);
  }
  Form form = plain(core);
  multiply_constant(form, number);
  // Innermost first, so that per-column factors stand in X in the order in which they were applied.
  for (auto atom = atoms.rbegin(); atom != atoms.rend(); ++atom) multiply(form, *atom);
  form.origin = v.id;
  return form;
}

Value peel_columns(Value core, std::vector<Value>& columns) {
  std::vector<Value> outermost_first;
  while (is_call(core, Elementwise::mul) && operand(core, 0).shape() == core.shape() &&
         operand(core, 1).shape().is_per_column()) {
    std::vector<Value> atoms;
    double number = 1;
    vector_factors(operand(core, 1), number, atoms);
    if (number != 1) break;
    outermost_first.insert(outermost_first.end(), atoms.begin(), atoms.end());
    core = operand(core, 0);
  }
  columns.insert(columns.end(), outermost_first.rbegin(), outermost_first.rend());
  return core;
}

}  // namespace coda
