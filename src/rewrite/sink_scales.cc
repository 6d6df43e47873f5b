// SPDX-License-Identifier: Apache-2.0
#include "rewrite/sink_scales.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "ir/rebuild.h"
#include "rewrite/form.h"
#include "rewrite/readiness.h"

namespace coda {
namespace {

// The intersection and the difference of two multisets of ids, each in ascending order.
std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}
std::vector<int> without(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

class SinkScales {
 public:
  SinkScales(Graph& graph, const SinkScalesOptions& options, Candidates& candidates)
      : graph_(graph), options_(options), candidates_(candidates), readiness_(graph) {
    values_.resize(static_cast<size_t>(graph.size()));
    forms_.resize(values_.size());
    for (size_t i = 0; i < candidates.row_factors.size(); ++i) {
      if (options.choices->is_pinned(i)) pinned_.push_back(candidates.row_factors[i]);
    }
  }

  // The rewritten node; operands are visited first, so the recursion is only as deep as one node.
  int rewrite(int root) {
    for (int id : newly_reached(graph_, root, seen_)) value(id);
    return value(root).id;
  }

 private:
  bool is_frozen(int id) const {
    return id < static_cast<int>(options_.frozen.size()) &&
           options_.frozen[static_cast<size_t>(id)];
  }

  Value value(int id) {
    Value& v = values_[static_cast<size_t>(id)];
    if (v.graph != nullptr) return v;
    if (is_frozen(id)) {
      v = graph_.value(id);
    } else if (graph_.node(id).shape.is_vector() || graph_.node(id).op == Op::opaque) {
      v = vector(id);
    } else {
      // A scaled forward value is no gradient: nothing of it is shared with dz'.
      const Form& f = form(id);
      v = value_of(f, is_frozen(strip(f.core).id) ? std::vector<int>{} : pinned_);
    }
    return v;
  }

  const Form& form(int id) {
    std::optional<Form>& f = forms_[static_cast<size_t>(id)];
    if (!f) f = is_frozen(id) ? peel(graph_.value(id)) : compute(graph_.node(id));
    return *f;
  }

  std::vector<Value> values(const Node& n) {
    std::vector<Value> out;
    out.reserve(n.operands.size());
    for (int operand : n.operands) out.push_back(value(operand));
    return out;
  }

  // Scales of vectors are not sunk; a reduction of a tensor with sunk scales lets its factors out.
  Value vector(int id) {
    const Node& n = graph_.node(id);
    if (n.op == Op::slice_columns) return slice(value(n.operands[0]), n.dim, n.shape.cols);
    const bool reduces = (n.op == Op::row_sum || n.op == Op::col_sum) &&
                         graph_.node(n.operands[0]).shape.is_tensor();
    const bool adds = n.op == Op::elementwise && n.fn == Elementwise::add;
    if (adds && !options_.frozen.empty())
      return vector_sum(value(n.operands[0]), value(n.operands[1]));
    if (!reduces) return rebuild(graph_, n, values(n));
    Form f = form(n.operands[0]);
    std::vector<int> leaving;
    if (!f.has_terms()) {
      for (int factor : f.factors) {
        const bool scalar = graph_.node(factor).shape.is_scalar();
        if (scalar || n.op == Op::row_sum) leaving.push_back(factor);
      }
    }
    if (leaving.empty()) return rebuild(graph_, n, {value(n.operands[0])});
    for (int factor : leaving)
      f.factors.erase(std::find(f.factors.begin(), f.factors.end(), factor));
    f.origin = -1;
    return mul(rebuild(graph_, n, {value_of(f, pinned_)}), product_of(graph_, leaving));
  }

  // Of the upstream gradient times forward values that gradient leaves the sum, as in 0.9 g + 0.1
  // g, which a smoothed loss sends to its log-sum-exp.
  Value vector_sum(Value a, Value b) {
    Form fa = scaled_one(a);
    Form fb = scaled_one(b);
    const bool common = keep_common_factors(fa, fb) && !fa.factors.empty();
    if (!common || !is_of_forward(fa.core.id) || !is_of_forward(fb.core.id)) return add(a, b);
    return mul(add(fa.core, fb.core), product_of(graph_, fa.factors));
  }

  Form compute(const Node& n) {
    switch (n.op) {
      case Op::elementwise:
        if (n.fn == Elementwise::mul) return multiplication(n);
        if (n.fn == Elementwise::add) return addition(n);
        break;
      case Op::split_pair:
      case Op::group_sum:
      case Op::group_repeat: return row_linear(n);
      case Op::merge_pairs:
      case Op::concat_columns: return merged(n);
      case Op::slice_columns: return plain(slice(value(n.operands[0]), n.dim, n.shape.cols));
      case Op::matmul:
        if (n.transposes.size() == 1) return product(n);
        break;
      default: break;
    }
    return plain(rebuild(graph_, n, values(n)));
  }

  bool is_tensor(int id) const { return graph_.node(id).shape.is_tensor(); }

  Form multiplication(const Node& n) {
    const int a = n.operands[0];
    const int b = n.operands[1];
    if (!is_tensor(a) && !is_tensor(b)) return plain(rebuild(graph_, n, values(n)));
    if (is_tensor(a) && is_tensor(b)) return tensor_product(a, b);
    const int tensor = is_tensor(a) ? a : b;
    const Value factor = value(is_tensor(a) ? b : a);
    Form f = form(tensor);
    double number = 1;
    std::vector<Value> atoms;
    vector_factors(factor, number, atoms);
    const bool of_columns = factor.shape().is_per_column();
    const bool splits = (of_columns || number != 1) && is_product_with_terms(f);
    if (splits || (of_columns && waits_for_norm(factor))) f = plain(value_of(f, pinned_));
    multiply_constant(f, number);
    for (Value atom : atoms) multiply(f, atom);
    return f;
  }

  // Whether the form is z = r ⊙ (acc + terms) + terms, where acc is a GEMM's result. Such a z is
  // computed first, and only then multiplied by a constant or by a vector along columns. For
  // example GELU(z) = z Φ(z) reads both z and z / √2. If z / √2 were computed from acc / √2 and
  // terms / √2, then acc and the terms would each get two gradients, one through z and one through
  // z / √2. These would be rounded separately. In the weight's gradient, the contributions of the
  // norm's mean and of the GEMM would then no longer cancel (docs/numerics.md).
  bool is_product_with_terms(const Form& f) const {
    return f.has_terms() && graph_.node(f.core.id).op == Op::matmul;
  }

  // A table is a constant, so a row factor passes it; otherwise only scalars leave a product of
  // tensors.
  Form tensor_product(int a, int b) {
    Form fa = form(a);
    Form fb = form(b);
    if (is_table(a)) std::swap(fa, fb);
    if ((is_table(a) || is_table(b)) && fa.outer.empty()) {
      Form inside = fa;
      inside.factors.clear();
      inside.origin = fa.factors.empty() ? fa.origin : -1;
      Form out = plain(mul(value_of(inside), value_of(fb)));
      out.factors = fa.factors;
      out.origin = -1;
      return out;
    }
    std::vector<int> scalars = take_scalars(fa);
    const std::vector<int> more = take_scalars(fb);
    scalars.insert(scalars.end(), more.begin(), more.end());
    Form out = plain(mul(value_of(fa, pinned_), value_of(fb, pinned_)));
    for (int s : scalars) multiply(out, graph_.value(s));
    return out;
  }

  std::vector<int> take_scalars(Form& f) {
    if (f.has_terms()) return {};
    std::vector<int> scalars;
    for (int factor : f.factors) {
      if (graph_.node(factor).shape.is_scalar()) scalars.push_back(factor);
    }
    if (scalars.empty()) return {};
    std::erase_if(f.factors, [this](int factor) { return graph_.node(factor).shape.is_scalar(); });
    f.origin = -1;
    return scalars;
  }

  bool is_table(int id) const {
    const Node& n = graph_.node(id);
    if (n.op == Op::input) return n.kind == InputKind::table;
    if (n.op == Op::constant || n.op == Op::column_index || n.op == Op::ones) return true;
    const bool passes =
        n.op == Op::gather_rows || n.op == Op::repeat_columns || n.op == Op::elementwise;
    return passes &&
           std::all_of(n.operands.begin(), n.operands.end(), [this](int o) { return is_table(o); });
  }

  Form addition(const Node& n) {
    const int a = n.operands[0];
    const int b = n.operands[1];
    if (is_tensor(a) && is_tensor(b)) {
      Form fa = form(a);
      Form fb = form(b);
      if (fa.factors != fb.factors && !keep_common_factors(fa, fb))
        return plain(add(value(a), value(b)));
      fa.core = add(fa.core, fb.core);
      fa.inner.insert(fa.inner.end(), fb.inner.begin(), fb.inner.end());
      fa.outer.insert(fa.outer.end(), fb.outer.begin(), fb.outer.end());
      fa.origin = -1;
      return fa;
    }
    if (!is_tensor(a) && !is_tensor(b)) return plain(rebuild(graph_, n, values(n)));
    const int tensor = is_tensor(a) ? a : b;
    Form f = form(tensor);
    const Value v = value(is_tensor(a) ? b : a);
    if (!f.factors.empty() && !is_frozen(tensor) && !v.shape().is_per_column()) {
      Form of_vector = scaled_one(v);
      if (keep_common_factors(f, of_vector)) {
        f.core = add(f.core, of_vector.core);
        return f;
      }
    }
    if (f.factors.empty() && !f.has_terms() && readiness_.is_ready(v.id, f.core.id)) {
      return plain(add(f.core, v));
    }
    const Term term = v.shape().is_per_column() ? Term{{}, v} : Term{v, {}};
    (f.factors.empty() && !(v.shape().is_per_column() && !f.inner.empty()) ? f.inner : f.outer)
        .push_back(term);
    f.origin = -1;
    return f;
  }

  // What the backward makes of forward values alone, up to factors (a loss's gradient): of two
  // summands the factors that they share leave, the upstream gradient among them, and the others
  // stay. A term kept apart instead would have the sum stored twice, with it and without.
  bool keep_common_factors(Form& a, Form& b) {
    if (a.has_terms() || b.has_terms()) return false;
    if (!is_of_forward(a.core.id) || !is_of_forward(b.core.id)) return false;
    const std::vector<int> shared = common(a.factors, b.factors);
    for (Form* f : {&a, &b}) {
      f->core = mul(f->core, product_of(graph_, without(f->factors, shared)));
      f->factors = shared;
      f->origin = -1;
    }
    return true;
  }

  // A vector as factors of 1, a mask's scalars among them.
  Form scaled_one(Value v) {
    Form form = plain(graph_.constant(1));
    double number = 1;
    std::vector<Value> atoms;
    vector_factors(v, number, atoms);
    multiply_constant(form, number);
    for (Value atom : atoms) multiply(form, atom);
    return form;
  }

  // Made of the forward's nodes and constants without a product or a call.
  bool is_of_forward(int id) {
    const auto known = of_forward_.find(id);
    if (known != of_forward_.end()) return known->second;
    const Node& n = graph_.node(id);
    bool found = is_frozen(id) || n.op == Op::constant || n.op == Op::column_index ||
                 n.op == Op::ones || n.op == Op::reciprocal_dim;
    if (!found && !n.operands.empty() && n.op != Op::matmul && n.op != Op::opaque) {
      found = std::all_of(n.operands.begin(), n.operands.end(),
                          [this](int operand) { return is_of_forward(operand); });
    }
    return of_forward_[id] = found;
  }

  Form row_linear(const Node& n) {
    Form f = form(n.operands[0]);
    if (f.has_terms()) return plain(rebuild(graph_, n, {value(n.operands[0])}));
    f.core = rebuild(graph_, n, {f.core});
    f.origin = f.factors.empty() ? f.core.id : -1;
    return f;
  }

  // The form of merge_pairs and of concat_columns. A factor that all operands share multiplies the
  // result, not each operand. If it multiplied the operands, the stored gradients of q, k and v
  // would contain the norm's factor r, and a small r makes these gradients underflow in fp16
  // (docs/numerics.md). A pinned factor of a concatenation multiplies the operands nevertheless.
  // The concatenation is a stored tensor, and multiplying it later would read and write it once
  // more.
  Form merged(const Node& n) {
    std::vector<Form> parts;
    std::optional<std::vector<int>> shared;
    for (int operand : n.operands) {
      parts.push_back(form(operand));
      const Form& part = parts.back();
      if (part.has_terms()) return plain(rebuild(graph_, n, values(n)));
      if (is_zero(part.core.id)) continue;
      shared = shared ? common(*shared, part.factors) : part.factors;
    }
    if (shared && n.op == Op::concat_columns && !options_.frozen.empty())
      std::erase_if(*shared, [this](int factor) { return is_pinned(factor); });
    if (!shared || shared->empty()) return plain(rebuild(graph_, n, values(n)));
    std::vector<Value> rest;
    for (Form& part : parts) {
      const bool zero = is_zero(part.core.id);
      part.factors = zero ? std::vector<int>{} : without(part.factors, *shared);
      part.origin = -1;
      rest.push_back(value_of(part, pinned_));
    }
    Form out = plain(rebuild(graph_, n, rest));
    out.factors = *shared;
    out.origin = -1;
    return out;
  }

  // Whether the value is a constant 0, possibly broadcast.
  bool is_zero(int id) const {
    const Node& n = graph_.node(id);
    if (n.op == Op::constant) return n.number == 0;
    return n.op == Op::elementwise && n.fn == Elementwise::mul &&
           std::any_of(n.operands.begin(), n.operands.end(), [this](int o) { return is_zero(o); });
  }

  // A slice goes to the leaves: columns of a product are the product with columns of the weight,
  // which is a view of memory.
  Value slice(Value x, const Dim& offset, const Dim& cols) {
    if (x.shape().cols.is(1) || is_frozen(x.id))
      return x.shape().cols.is(1) ? x : slice_columns(x, offset, cols);
    const Node& n = graph_.node(x.id);
    if (n.op == Op::elementwise) {
      if (is_product_less_mean(x.id)) return slice_columns(x, offset, cols);
      std::vector<Value> operands;
      for (int operand : n.operands) operands.push_back(slice(graph_.value(operand), offset, cols));
      return elementwise(n.fn, operands);
    }
    if (n.op == Op::col_sum) return col_sum(slice(graph_.value(n.operands[0]), offset, cols));
    if (n.op == Op::matmul && !has_transposed_weight(n)) {
      std::vector<MatmulOperands> segments;
      for (size_t s = 0; s < n.transposes.size(); ++s) {
        const Value weight = graph_.value(n.operands[2 * s + 1]);
        segments.push_back(
            {graph_.value(n.operands[2 * s]), slice(weight, offset, cols), n.transposes[s]});
      }
      return matmul(segments);
    }
    return slice_columns(x, offset, cols);
  }

  static bool has_transposed_weight(const Node& product) {
    return std::any_of(product.transposes.begin(), product.transposes.end(),
                       [](const Transposes& t) { return t.b; });
  }

  // Whether the value is acc + u vᵀ, where acc is a GEMM's result and u vᵀ a norm's mean term. If
  // slices of such a value are read, the sum is stored and sliced, not acc alone. If acc were
  // stored in 16 bits, its rounding error would remain after the mean term cancels most of acc
  // (docs/numerics.md).
  bool is_product_less_mean(int id) const {
    const Node& n = graph_.node(id);
    if (n.op != Op::elementwise || n.fn != Elementwise::add) return false;
    const auto is_term = [this](int operand) {
      const Node& term = graph_.node(operand);
      return term.op == Op::elementwise && term.fn == Elementwise::mul && term.shape.is_tensor() &&
             graph_.node(term.operands[0]).shape.is_vector() &&
             graph_.node(term.operands[1]).shape.is_vector();
    };
    if (!is_term(n.operands[1])) return false;
    const Node& sum = graph_.node(n.operands[0]);
    return sum.op == Op::matmul ? has_transposed_weight(sum) : is_product_less_mean(n.operands[0]);
  }

  // ---- products ----

  Form product(const Node& n) {
    const Transposes t = n.transposes[0];
    if (!t.a) return rows_product(form(n.operands[0]), n.operands[1], t);
    if (!t.b) return contraction_over_rows(n.operands[0], n.operands[1]);
    return plain(rebuild(graph_, n, values(n)));
  }

  // A·op(B): f stays outside; terms u vᵀ become u (v·op(B)).
  Form rows_product(Form a, int b, const Transposes& t) {
    Value weight = value(b);
    std::vector<Value> folded;
    if (options_.frozen.empty()) {
      record(a.factors, candidates_.row_factors);
      record_columns(a);
      if (has_two_means(a)) a = plain(value_of(a));
      a = fold(a, folded);
      if (options_.choices->means_first && !a.inner.empty() && folded.empty())
        a = plain(value_of(a));
    } else {
      a = keep_pinned(a);
    }
    // Factors of B along the output's columns leave.
    std::vector<Value> leaving;
    Value stripped = t.b ? weight : peel_columns(weight, leaving);
    Value scaled = stripped;
    for (Value w : folded) scaled = mul(scaled, t.b ? w : transpose(w));

    Form out = plain(matmul({{a.core, scaled, t}}));
    out.factors = a.factors;
    out.inner = through(a.inner, stripped, folded, t);
    out.outer = through(a.outer, stripped, folded, t);
    out.origin = a.factors.empty() && !a.has_terms() ? out.core.id : -1;
    for (Value w : leaving) multiply(out, w);
    return out;
  }

  // Whether the form subtracts two row means, because the input of a norm is the result of another
  // norm. If both means were subtracted from the GEMM's result, both subtractions would lose
  // digits.
  static bool has_two_means(const Form& f) {
    return !f.inner.empty() && std::any_of(f.outer.begin(), f.outer.end(), [](const Term& term) {
      return term.row.graph != nullptr && term.row.shape().is_per_row();
    });
  }

  // u vᵀ·op(B). A factor that was folded and that the term has goes with the weight, as g must be
  // the sums of the weight as it is used; one that the term lacks does not.
  std::vector<Term> through(const std::vector<Term>& terms, Value weight,
                            const std::vector<Value>& folded, const Transposes& t) {
    std::vector<Term> out;
    for (const Term& term : terms) {
      double number = 1;
      std::vector<Value> atoms;
      if (term.col.graph != nullptr) vector_factors(term.col, number, atoms);
      Value scaled = weight;
      for (Value w : folded) {
        auto has = std::find(atoms.begin(), atoms.end(), w);
        if (has == atoms.end()) continue;
        atoms.erase(has);
        scaled = mul(scaled, t.b ? w : transpose(w));
      }
      Value v = graph_.constant(number);
      for (Value atom : atoms) v = mul(v, atom);
      Value col;
      if (v.shape().is_scalar()) {
        col = mul(t.b ? transpose(row_sum(scaled)) : col_sum(scaled), v);
      } else {
        col = matmul({{v, scaled, t}});
      }
      out.push_back({term.row, col});
    }
    return out;
  }

  // A pinned factor stays on the gradient: the data gradient reads the same stored dz' as the
  // weight gradient.
  Form keep_pinned(Form a) {
    if (a.has_terms()) return a;
    std::vector<int> kept;
    for (int factor : a.factors) {
      if (is_pinned(factor)) kept.push_back(factor);
    }
    if (kept.empty()) return a;
    std::erase_if(a.factors, [this](int factor) { return is_pinned(factor); });
    a.core = mul(a.core, product_of(graph_, kept));
    a.origin = -1;
    return a;
  }

  void record(const std::vector<int>& found, std::vector<int>& list) {
    for (int id : found) {
      if (graph_.node(id).shape.is_scalar()) continue;
      if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
    }
  }

  ColumnFactor choice(Value w) const {
    const auto& list = candidates_.column_factors;
    const auto found = std::find(list.begin(), list.end(), w.id);
    if (found == list.end()) return ColumnFactor::producer;
    return options_.choices->column_factor(static_cast<size_t>(found - list.begin()));
  }

  bool waits_for_norm(Value w) const {
    return options_.frozen.empty() && choice(w) == ColumnFactor::normalise_first;
  }

  void record_columns(const Form& a) {
    std::vector<Value> columns;
    peel_columns(a.core, columns);
    std::vector<int> ids;
    for (Value w : columns) ids.push_back(w.id);
    record(ids, candidates_.column_factors);
    if (!a.inner.empty()) record(ids, candidates_.row_affine);
  }

  // Removes the column factors that the choices fold into the weight from X, and adds them to
  // `folded`.
  Form fold(Form a, std::vector<Value>& folded) {
    std::vector<Value> columns;
    Value core = peel_columns(a.core, columns);
    for (Value w : columns) {
      if (choice(w) == ColumnFactor::weight) {
        folded.push_back(w);
      } else {
        core = mul(core, w);
      }
    }
    if (!folded.empty()) a.origin = -1;
    a.core = core;
    return a;
  }

  // Aᵀ·B (a weight's gradient): scalars leave; factors along the outputs leave on both sides;
  // per-row factors lie along the contraction and stand on one operand.
  Form contraction_over_rows(int a_id, int b_id) {
    Form a = form(a_id);
    Form b = form(b_id);
    const bool gradient_is_b = !is_frozen(strip(b.core).id) && is_frozen(strip(a.core).id);
    Form& gradient = gradient_is_b ? b : a;
    Form& other = gradient_is_b ? a : b;
    if (gradient.has_terms()) gradient = plain(value_of(gradient, pinned_));
    if (other.has_terms()) other = plain(value_of(other, pinned_));
    std::vector<int> scalars = take_scalars(gradient);
    const std::vector<int> more = take_scalars(other);
    scalars.insert(scalars.end(), more.begin(), more.end());

    std::vector<Value> a_columns;
    std::vector<Value> b_columns;
    const Value a_core = peel_columns(a.core, a_columns);
    const Value b_core = peel_columns(b.core, b_columns);
    std::vector<int> rows = a.factors;
    rows.insert(rows.end(), b.factors.begin(), b.factors.end());
    std::sort(rows.begin(), rows.end());
    std::vector<int> on_gradient;
    std::vector<int> on_other;
    for (int r : rows) (is_pinned(r) ? on_gradient : on_other).push_back(r);
    const Value left = mul(a_core, product_of(graph_, gradient_is_b ? on_other : on_gradient));
    const Value right = mul(b_core, product_of(graph_, gradient_is_b ? on_gradient : on_other));

    Form out = plain(matmul({{left, right, {true, false}}}));
    for (Value w : a_columns) multiply(out, transpose(w));
    for (Value w : b_columns) multiply(out, w);
    for (int s : scalars) multiply(out, graph_.value(s));
    return out;
  }

  bool is_pinned(int id) const {
    return std::find(pinned_.begin(), pinned_.end(), id) != pinned_.end();
  }

  // X without vector scales and vector additions: which operand of Aᵀ·B is the gradient is read off
  // this core.
  Value strip(Value v) const {
    for (;;) {
      const Node& n = graph_.node(v.id);
      const bool passes =
          n.op == Op::elementwise && (n.fn == Elementwise::mul || n.fn == Elementwise::add);
      if (!passes) return v;
      const bool first = graph_.node(n.operands[0]).shape.is_vector();
      const bool second = graph_.node(n.operands[1]).shape.is_vector();
      if (first == second) return v;
      v = graph_.value(n.operands[first ? 1 : 0]);
    }
  }

  Graph& graph_;
  const SinkScalesOptions& options_;
  Candidates& candidates_;
  Readiness readiness_;
  std::vector<int> pinned_;
  // By node: what was made of it. The nodes that the pass itself adds are not visited.
  std::vector<std::optional<Form>> forms_;
  std::vector<Value> values_;
  std::vector<bool> seen_;
  std::unordered_map<int, bool> of_forward_;
};

}  // namespace

std::vector<int> sink_scales(Graph& graph, const std::vector<int>& roots,
                             const SinkScalesOptions& options, Candidates& candidates) {
  SinkScales pass(graph, options, candidates);
  std::vector<int> out;
  for (int root : roots) out.push_back(pass.rewrite(root));
  return out;
}

}  // namespace coda
