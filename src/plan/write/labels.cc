// SPDX-License-Identifier: Apache-2.0
// Derives names from GEMMs with weights, then follows the values computed from them.
#include "plan/write/labels.h"

#include <algorithm>

#include "plan/partition/materialise.h"
#include "plan/partition/partition.h"

namespace coda {
namespace {

// "l0." of "l0.q", "" of "q".
std::string scope_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }
std::string last_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

// The module of a parameter: "l0.ln.weight" and "l0.ln.w" belong to l0.ln.
std::string module_of(const std::string& name) {
  for (const std::string_view ending : {".weight", ".bias", ".w", ".b"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::string with(const std::string& name, const std::string& ending) {
  return name.ends_with(ending) ? name : name + ending;
}

// "l0.d_q_out" of "l0.q_out".
std::string gradient_name(const std::string& name) { return scope_of(name) + "d_" + last_of(name); }

}  // namespace

Labels::Labels(const JointGraph& joint) : joint_(joint), graph_(*joint.graph) {
  find_products();
  find_gradients();
}

const std::string& Labels::of(int id) {
  auto known = made_.find(id);
  if (known != made_.end()) return known->second;
  std::string label = make(id);
  return made_[id] = std::move(label);
}

std::string Labels::make(int id) {
  const Node& n = graph_.node(id);
  if (n.op == Op::input) return n.name;
  if (n.op == Op::result) return call_result(n);
  auto gradient = gradient_of_.find(id);
  if (gradient != gradient_of_.end()) return gradient_name(of(gradient->second));
  return n.shape.is_tensor() ? tensor(id) : vector(id);
}

bool Labels::is_constant(int id) const {
  const Op op = graph_.node(id).op;
  return op == Op::constant || op == Op::reciprocal_dim || op == Op::ones || op == Op::column_index;
}

// The parameter that a matrix is, or from which it was folded; else -1.
int Labels::weight_of(int id) const {
  for (;;) {
    const Node& n = graph_.node(id);
    if (n.op == Op::input) return n.kind == InputKind::parameter && n.shape.is_tensor() ? id : -1;
    if (n.op == Op::matmul || n.operands.empty() || !n.shape.is_tensor()) return -1;
    id = n.operands[0];
  }
}

// ---- GEMMs of the forward, and the values whose gradients the backward computes.

void Labels::find_products() {
  for (int id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_.node(id);
    if (n.op != Op::matmul || !is_forward(id)) continue;
    for (size_t i = 1; i < n.operands.size(); i += 2) {
      const int weight = weight_of(n.operands[i]);
      if (weight >= 0) product_of_.try_emplace(weight, id);
    }
  }
}

// A backward GEMM with a weight has on its left the gradient of that weight's forward GEMM, and
// computes the gradient of that GEMM's input. An adjoint's results are the gradients of the call's
// operands.
void Labels::find_gradients() {
  std::vector<int> calls;
  for (int id = 0; id < graph_.size(); ++id) {
    const Node& n = graph_.node(id);
    if (n.op == Op::opaque && is_forward(id)) calls.push_back(id);
    if (is_forward(id)) continue;
    for (size_t s = 0; n.op == Op::matmul && s < n.transposes.size(); ++s) {
      const int left = n.operands[2 * s];
      auto product = product_of_.find(weight_of(n.operands[2 * s + 1]));
      if (product == product_of_.end()) continue;
      if (!is_forward(left)) gradient_of_.try_emplace(left, product->second);
      gradient_of_.try_emplace(id, graph_.node(product->second).operands[0]);
    }
    if (n.op != Op::opaque) continue;
    for (int call : calls) {
      const Node& forward = graph_.node(call);
      if (n.name != forward.name + "_backward") continue;
      const bool same = std::any_of(n.operands.begin(), n.operands.end(), [&](int operand) {
        return std::find(forward.operands.begin(), forward.operands.end(), operand) !=
               forward.operands.end();
      });
      if (same) gradient_of_.try_emplace(id, call);
    }
  }
}

std::string Labels::call_result(const Node& n) {
  const int call = n.operands[0];
  const Node& c = graph_.node(call);
  if (c.name == kStoredCall) return of(c.operands[0]);
  auto forward = gradient_of_.find(call);
  if (forward != gradient_of_.end()) {
    return gradient_name(of(graph_.node(forward->second).operands[static_cast<size_t>(n.which)]));
  }
  const std::string name = scope_of(of(c.operands[0])) + c.name;
  return n.which == 0 ? name : name + "_" + std::to_string(n.which);
}

// ---- Tensors.

std::string Labels::tensor(int id) {
  const Node& n = graph_.node(id);
  switch (n.op) {
    case Op::matmul: return product(id);
    case Op::elementwise: return elementwise_tensor(id);
    case Op::split_pair: return of(n.operands[0]) + (n.which == 0 ? "_first" : "_second");
    case Op::merge_pairs: {
      // Both members read both members of other pairs: a rotation.
      bool found[2] = {false, false};
      members_of(n.operands[0], 6, found);
      const std::string ending = found[0] && found[1] ? "_rotated" : "_pairs";
      std::vector<int> products;
      made_of_products(id, products);
      if (products.size() != 1) return with(of(n.operands[0]), ending);
      const std::string& label = of(products[0]);
      return (label.ends_with("_out") ? label.substr(0, label.size() - 4) : label) + ending;
    }
    case Op::slice_columns: return of(n.operands[0]) + "_columns";
    case Op::concat_columns: return of(n.operands[0]) + "_joined";
    case Op::group_sum: return with(of(n.operands[0]), "_group_sum");
    default: return n.operands.empty() ? "value" : of(n.operands[0]);
  }
}

std::string Labels::product(int id) {
  const Node& n = graph_.node(id);
  const int weight = weight_of(n.operands[1]);
  if (is_forward(id) && weight >= 0) return module_of(graph_.node(weight).name) + "_out";
  // A weight's gradient is named after the gradient of its GEMM.
  std::string left = of(n.operands[0]);
  if (n.transposes[0].a && left.ends_with("_out")) left.resize(left.size() - 4);
  return n.transposes[0].a ? left : left + "_product";
}

void Labels::members_of(int id, int depth, bool (&found)[2]) const {
  const Node& n = graph_.node(id);
  if (n.op == Op::split_pair) found[n.which] = true;
  if (depth == 0 || n.op == Op::split_pair || n.op == Op::matmul || !n.shape.is_tensor()) return;
  for (int operand : n.operands) members_of(operand, depth - 1, found);
}

// The GEMMs of its phase from which a value is computed elementwise, without sums of tensors.
void Labels::made_of_products(int id, std::vector<int>& products) const {
  const Node& n = graph_.node(id);
  if (n.op == Op::matmul) {
    if (std::find(products.begin(), products.end(), id) == products.end()) products.push_back(id);
    return;
  }
  const bool local = n.op == Op::elementwise || n.op == Op::split_pair || n.op == Op::merge_pairs;
  if (!local || is_source(graph_, id) || products.size() > 2) return;
  for (int operand : n.operands) {
    if (is_tensor(operand)) made_of_products(operand, products);
  }
}

std::string Labels::elementwise_tensor(int id) {
  const Node& n = graph_.node(id);
  std::vector<int> tensors;
  std::vector<int> vectors;
  for (int operand : n.operands) (is_tensor(operand) ? tensors : vectors).push_back(operand);
  if (tensors.empty()) return vector(id);
  if (tensors.size() == 1 && n.fn == Elementwise::mul) return scaled(tensors[0], vectors[0]);
  if (tensors.size() == 1 && n.fn == Elementwise::add) return of(tensors[0]);
  if (n.fn == Elementwise::add) {
    for (int operand : tensors) {
      const std::string& label = of(operand);
      if (label.ends_with("_out")) return label.substr(0, label.size() - 4) + "_residual";
    }
    return with(of(tensors[0]), "_sum");
  }
  std::vector<int> products;
  made_of_products(id, products);
  if (products.empty()) return with(of(tensors[0]), "_" + std::string(info(n.fn).name));
  std::string joined = scope_of(of(products[0]));
  for (int product : products) {
    const std::string name = last_of(of(product));
    joined += (name.ends_with("_out") ? name.substr(0, name.size() - 4) : name) + "_";
  }
  return joined + "act";
}

std::string Labels::scaled(int tensor, int vector) {
  const std::string& label = of(tensor);
  const Node& v = graph_.node(vector);
  if (is_constant(vector)) return label;
  if (v.shape.is_per_row()) {
    const bool of_product = label.ends_with("_out") || label.ends_with("_rotated");
    return of_product ? label : with(label, is_forward(tensor) ? "_normalised" : "_scaled");
  }
  const int parameter = v.op == Op::elementwise ? v.operands[0] : vector;
  if (graph_.node(parameter).op != Op::input) return label;
  if (weight_of(tensor) >= 0) return with(module_of(label), "_folded");
  const bool whole = label.ends_with("_normalised");
  return module_of(of(parameter)) + (whole ? "_out" : "_scaled");
}

// ---- Vectors.

std::string Labels::vector(int id) {
  const Node& n = graph_.node(id);
  if (n.operands.empty()) return n.op == Op::reciprocal_dim ? "size_recip" : "constant";
  if (n.op != Op::elementwise) {
    if (is_tensor(n.operands[0])) return reduction(n);
    const bool sums = n.op == Op::row_sum || n.op == Op::col_sum;
    const std::string& label = of(n.operands[0]);
    if (sums && label.ends_with("_mask")) return label.substr(0, label.size() - 5) + "_count";
    return sums ? with(label, "_sum") : label;
  }
  std::vector<int> given;
  for (int operand : n.operands) {
    if (!is_constant(operand)) given.push_back(operand);
  }
  if (given.empty()) return "constant";
  std::string label = of(*std::max_element(given.begin(), given.end(), [this](int a, int b) {
    return std::pair(!graph_.node(a).shape.is_scalar(), a) <
           std::pair(!graph_.node(b).shape.is_scalar(), b);
  }));
  if (n.fn == Elementwise::equal || n.fn == Elementwise::less) return with(label, "_mask");
  if (n.fn == Elementwise::rsqrt) {
    for (const std::string_view ending : {"_m2", "_squares"}) {
      if (label.ends_with(ending)) return label.substr(0, label.size() - ending.size()) + "_rstd";
    }
    return label + "_rstd";
  }
  if (n.fn == Elementwise::mul && given.size() == 1 && label.ends_with("_sum"))
    return label.substr(0, label.size() - 4) + "_mean";
  const bool linear = n.fn == Elementwise::mul || n.fn == Elementwise::add;
  if (linear && n.operands.size() > given.size()) return label;
  return with(label, linear ? "_scaled" : "_" + std::string(info(n.fn).name));
}

std::string Labels::reduction(const Node& n) {
  const int reduced = n.operands[0];
  const Node& product = graph_.node(reduced);
  switch (n.op) {
    case Op::row_reduce: return of(reduced) + "_" + std::string(info(n.reduction).label);
    case Op::col_reduce: return of(reduced) + "_column_" + std::string(info(n.reduction).label);
    case Op::select_column: return of(reduced) + "_selected";
    default: break;
  }
  const std::string ending = n.op == Op::col_sum ? "_column_" : "_";
  const bool of_two = product.op == Op::elementwise && product.fn == Elementwise::mul &&
                      is_tensor(product.operands[0]) && is_tensor(product.operands[1]);
  if (!of_two) return of(reduced) + ending + "sum";
  const int first = product.operands[0];
  const int second = product.operands[1];
  if (first == second) return of(first) + ending + "squares";
  return of(is_forward(second) ? second : first) + ending + "dot";
}

}  // namespace coda
