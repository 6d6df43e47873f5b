// SPDX-License-Identifier: Apache-2.0
#include "rewrite/merge_gemms.h"

#include <algorithm>
#include <map>

#include "ir/calls.h"
#include "ir/rebuild.h"
#include "rewrite/form.h"

namespace coda {
namespace {

// One summand: core ⊙ factors (vectors and constants, in canonical order).
struct Summand {
  Value core;
  std::vector<int> factors;
  double number = 1;
};

class MergeGemms {
 public:
  MergeGemms(Graph& graph, const std::vector<int>& roots, const std::vector<bool>& frozen)
      : graph_(graph),
        frozen_(frozen),
        uses_(static_cast<size_t>(graph.size()), 0),
        values_(uses_.size()) {
    const std::vector<bool> reached = reached_from(graph, roots);
    for (int id = 0; id < graph.size(); ++id) {
      if (!reached[static_cast<size_t>(id)]) continue;
      for (int operand : graph.node(id).operands) ++uses_[static_cast<size_t>(operand)];
    }
    for (int root : roots) ++uses_[static_cast<size_t>(root)];
  }

  int rewrite(int root) {
    for (int id : newly_reached(graph_, root, seen_)) value(id);
    return value(root).id;
  }

 private:
  bool is_frozen(int id) const {
    return id < static_cast<int>(frozen_.size()) && frozen_[static_cast<size_t>(id)];
  }
  const Node& node(Value v) const { return graph_.node(v.id); }
  bool is_call(Value v, Elementwise fn) const {
    return node(v).op == Op::elementwise && node(v).fn == fn;
  }
  Value operand(Value v, size_t i) const { return {v.graph, node(v).operands[i]}; }

  Value value(int id) {
    Value& v = values_[static_cast<size_t>(id)];
    if (v.graph == nullptr) v = is_frozen(id) ? graph_.value(id) : compute(id);
    return v;
  }

  Value compute(int id) {
    const Node& n = graph_.node(id);
    if (n.op == Op::elementwise && n.fn == Elementwise::add) {
      std::vector<Value> terms;
      flatten(id, true, terms);
      return n.shape.is_tensor() ? tensor_sum(terms) : vector_sum(terms, n.shape);
    }
    std::vector<Value> operands;
    operands.reserve(n.operands.size());
    for (int operand : n.operands) operands.push_back(value(operand));
    return rebuild(graph_, n, operands);
  }

  // The summands of `id`, rewritten. A sum that someone else reads too, or that is frozen, stays a
  // summand: it is rounded as it stands there, and not once more for each term that joins it here.
  void flatten(int id, bool top, std::vector<Value>& terms) {
    const Node& n = graph_.node(id);
    const bool sum = n.op == Op::elementwise && n.fn == Elementwise::add && !is_frozen(id);
    const bool own = id < static_cast<int>(uses_.size()) && uses_[static_cast<size_t>(id)] <= 1;
    if (!sum || (!top && !own)) {
      terms.push_back(value(id));
      return;
    }
    for (int operand : n.operands) flatten(operand, false, terms);
  }

  // Small terms first: what is itself a sum or lies in memory (the residual stream, its gradient)
  // grows with depth, and each addition to it rounds at its size. So a bias joins its product, and
  // a norm's terms one another, before they meet it.
  Value total(std::vector<Value> terms) {
    std::sort(terms.begin(), terms.end(), [this](Value a, Value b) {
      return std::pair(is_carried(a), a.id) < std::pair(is_carried(b), b.id);
    });
    Value sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) sum = add(sum, terms[i]);
    return sum;
  }

  bool is_carried(Value v) const {
    const Op op = node(v).op;
    return v.shape().is_tensor() && (is_call(v, Elementwise::add) || op == Op::result ||
                                     op == Op::input || (op != Op::matmul && is_frozen(v.id)));
  }

  // ---- tensors ----

  Summand summand(Value v) {
    Summand s{v, {}, 1};
    std::vector<Value> atoms;
    while (is_call(s.core, Elementwise::mul) && operand(s.core, 1).shape().is_vector() &&
           !is_frozen(s.core.id)) {
      vector_factors(operand(s.core, 1), s.number, atoms);
      s.core = operand(s.core, 0);
    }
    if (s.core.shape().is_vector()) {  // an outer product: all of it is factors of 1
      vector_factors(s.core, s.number, atoms);
      s.core = graph_.constant(1);
    }
    for (Value a : atoms) s.factors.push_back(a.id);
    std::sort(s.factors.begin(), s.factors.end());
    return s;
  }

  Value scaled(Value core, const Summand& s) {
    Value row = graph_.constant(s.number);
    Value col = graph_.constant(1);
    for (int id : s.factors) {
      const Value v = graph_.value(id);
      if (v.shape().is_per_column()) {
        col = mul(col, v);
      } else {
        row = mul(row, v);
      }
    }
    return mul(mul(core, row), col);
  }

  Value tensor_sum(const std::vector<Value>& terms) {
    std::vector<Summand> products;
    std::vector<Value> others;
    std::vector<Value> outer_products;
    for (Value t : terms) {
      const Summand s = summand(t);
      if (s.core.shape().is_scalar()) {
        outer_products.push_back(t);
      } else if (node(s.core).op == Op::matmul && !is_frozen(s.core.id) && is_own(s.core)) {
        products.push_back(s);
      } else {
        others.push_back(t);
      }
    }
    join_segments(products);
    for (Value t : outer_products) {
      if (!join_rank_one(products, summand(t))) others.push_back(t);
    }
    for (const Summand& p : products) others.push_back(scaled(p.core, p));
    return with_scatter(others);
  }

  // A forward product that others read too is made for them anyway: as a segment it would be made
  // twice. (In a backward the sums that share a product all join it with the same others.)
  bool is_own(Value product) const {
    const auto id = static_cast<size_t>(product.id);
    return !frozen_.empty() || id >= uses_.size() || uses_[id] <= 1;
  }

  // Products with equal factors become one product with their K segments, in the order of their
  // right operands: the parts of a sliced weight are summed as the whole would be.
  void join_segments(std::vector<Summand>& products) {
    std::vector<Summand> joined;
    for (const Summand& p : products) {
      auto same = std::find_if(joined.begin(), joined.end(), [&p](const Summand& q) {
        return p.factors == q.factors && p.number == q.number;
      });
      if (same == joined.end()) {
        joined.push_back(p);
        continue;
      }
      std::vector<MatmulOperands> segments = segments_of(same->core);
      const std::vector<MatmulOperands> more = segments_of(p.core);
      segments.insert(segments.end(), more.begin(), more.end());
      std::stable_sort(segments.begin(), segments.end(),
                       [this](const MatmulOperands& x, const MatmulOperands& y) {
                         return place_of(x.b) < place_of(y.b);
                       });
      same->core = matmul(segments);
    }
    products = std::move(joined);
  }

  // What v is a slice of, and the column at which it starts there.
  std::pair<int, Dim> place_of(Value v) const {
    Dim offset = 0;
    while (node(v).op == Op::slice_columns) {
      offset = offset + node(v).dim;
      v = operand(v, 0);
    }
    return {v.id, offset};
  }

  std::vector<MatmulOperands> segments_of(Value product) const {
    const Node& n = node(product);
    std::vector<MatmulOperands> segments;
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      segments.push_back({operand(product, 2 * s), operand(product, 2 * s + 1), n.transposes[s]});
    }
    return segments;
  }

  // (col_sum(A ⊙ u))ᵀ v beside (Aᵀ·B) ⊙ c joins as Aᵀ·(B + u (v / c)), unless B lies in memory
  // already; likewise vᵀ col_sum(B ⊙ u) joins as (A + u (v / c))ᵀ·B.
  bool join_rank_one(std::vector<Summand>& products, const Summand& term) {
    for (Summand& p : products) {
      const std::vector<MatmulOperands> segments = segments_of(p.core);
      if (segments.size() != 1 || !segments[0].transposes.a || segments[0].transposes.b) continue;
      std::vector<int> rest;  // the term's factors that the product lacks
      std::set_difference(term.factors.begin(), term.factors.end(), p.factors.begin(),
                          p.factors.end(), std::back_inserter(rest));
      if (rest.size() + p.factors.size() != term.factors.size()) continue;
      for (bool left : {true, false}) {
        const Value reduced = left ? segments[0].a : segments[0].b;
        const Value other = left ? segments[0].b : segments[0].a;
        Value addend;
        if (is_stored(other) || !rank_one_addend(rest, reduced, left, addend)) continue;
        addend = mul(addend, graph_.constant(term.number / p.number));
        const Value joined = add(other, addend);
        p.core = left ? matmul({{reduced, joined, segments[0].transposes}})
                      : matmul({{joined, reduced, segments[0].transposes}});
        return true;
      }
    }
    return false;
  }

  // factors = {sum over rows of (reduced ⊙ u), v...}: addend is u ⊗ v, for the operand beside
  // `reduced`.
  bool rank_one_addend(const std::vector<int>& factors, Value reduced, bool left,
                       Value& addend) const {
    for (size_t i = 0; i < factors.size(); ++i) {
      Value sum = graph_.value(factors[i]);
      if (left && node(sum).op != Op::transpose) continue;
      if (left) sum = operand(sum, 0);
      Value u;
      if (!column_sum_over(sum, reduced, u)) continue;
      Value v = graph_.constant(1);
      bool along_other = true;
      for (size_t j = 0; j < factors.size(); ++j) {
        if (j == i) continue;
        const Value factor = graph_.value(factors[j]);
        along_other =
            along_other && (left ? !factor.shape().is_per_row() : !factor.shape().is_per_column());
        v = mul(v, factor);
      }
      if (!along_other) continue;
      addend = mul(u, left || v.shape().is_scalar() ? v : transpose(v));
      return true;
    }
    return false;
  }

  bool is_stored(Value v) const {
    const Op op = node(v).op;
    return is_frozen(v.id) || op == Op::input || op == Op::matmul || op == Op::result;
  }

  // v = col_sum(a ⊙ u) with a per-row u (a product of vectors and constants).
  bool column_sum_over(Value v, Value a, Value& u) const {
    if (node(v).op != Op::col_sum) return false;
    Value x = operand(v, 0);
    u = graph_.constant(1);
    while (!(x == a)) {
      if (!is_call(x, Elementwise::mul)) return false;
      const Value factor = operand(x, 1);
      if (!factor.shape().is_per_row() && !factor.shape().is_scalar()) return false;
      u = mul(u, factor);
      x = operand(x, 0);
    }
    return u.shape().is_per_row();
  }

  // T + a call whose operation can add to an operand is a call that adds to T.
  Value with_scatter(const std::vector<Value>& terms) {
    for (size_t i = 0; i < terms.size() && terms.size() > 1; ++i) {
      if (node(terms[i]).op != Op::result) continue;
      Node call = node(operand(terms[i], 0));
      if (!can_add(call) || adds(call)) continue;
      std::vector<Value> rest = terms;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      const Value sum = total(rest);
      if (sum.shape() != terms[i].shape()) continue;
      call.operands.push_back(sum.id);
      Node result = node(terms[i]);
      result.operands = {graph_.intern(std::move(call))};
      return graph_.value(graph_.intern(std::move(result)));
    }
    return total(terms);
  }

  // ---- vectors ----

  // Σ_m (m ⊙ p) + Σ_m (m ⊙ q) = Σ_m (m ⊙ (p + q)) for a product m; and Σ (W ⊙ (Σ (A ⊙ u))ᵀ) = Σ (u
  // ⊙ (A·W)) where A·W exists.
  Value vector_sum(const std::vector<Value>& terms, const Shape& shape) {
    if (!shape.is_per_column()) return factored_total(terms);
    std::vector<Value> others;
    std::map<int, std::vector<Value>> shared;  // product -> what it is multiplied with
    for (Value t : terms) {
      Value product;
      Value rest;
      if (over_product(t, product, rest)) {
        shared[product.id].push_back(rest);
      } else {
        others.push_back(t);
      }
    }
    for (auto& [product, rests] : shared) {
      Value u;
      if (over_segments(graph_.value(product), others, u)) rests.push_back(u);
    }
    std::erase_if(others, [](Value t) { return t.graph == nullptr; });
    for (const auto& [product, rests] : shared) {
      others.push_back(col_sum(mul(graph_.value(product), total(rests))));
    }
    return total(others);
  }

  // Factors that all terms share leave the sum: a / r + b / r is (a + b) / r, which meets an r
  // later and cancels.
  Value factored_total(const std::vector<Value>& terms) {
    std::vector<Summand> summands;
    for (Value t : terms) {
      Summand s;
      std::vector<Value> atoms;
      vector_factors(t, s.number, atoms);
      for (Value a : atoms) s.factors.push_back(a.id);
      std::sort(s.factors.begin(), s.factors.end());
      summands.push_back(std::move(s));
    }
    std::vector<int> common = summands[0].factors;
    for (const Summand& s : summands) {
      std::vector<int> both;
      std::set_intersection(common.begin(), common.end(), s.factors.begin(), s.factors.end(),
                            std::back_inserter(both));
      common = std::move(both);
    }
    if (common.empty()) return total(terms);
    std::vector<Value> rest;
    for (const Summand& s : summands) {
      std::vector<int> own;
      std::set_difference(s.factors.begin(), s.factors.end(), common.begin(), common.end(),
                          std::back_inserter(own));
      rest.push_back(mul(product_of(graph_, own), graph_.constant(s.number)));
    }
    return mul(total(rest), product_of(graph_, common));
  }

  // t = col_sum(m ⊙ rest) with a product m.
  bool over_product(Value t, Value& product, Value& rest) {
    if (node(t).op != Op::col_sum || is_frozen(t.id)) return false;
    const Value x = operand(t, 0);
    if (node(x).op == Op::matmul) {
      product = x;
      rest = graph_.constant(1);
      return true;
    }
    return factor_out(x, product, rest);
  }

  bool factor_out(Value x, Value& product, Value& rest) {
    if (!is_call(x, Elementwise::mul)) return false;
    for (size_t i : {0U, 1U}) {
      const Value y = operand(x, i);
      if (node(y).op == Op::matmul) {
        product = y;
        rest = operand(x, 1 - i);
        return true;
      }
      Value inner;
      if (y.shape().is_tensor() && factor_out(y, product, inner)) {
        rest = mul(inner, operand(x, 1 - i));
        return true;
      }
    }
    return false;
  }

  // If each segment A·op(W) of the product has its Σ (op(W) ⊙ (Σ (A ⊙ u))ᵀ) among the terms, with
  // one u: takes those terms away.
  bool over_segments(Value product, std::vector<Value>& terms, Value& u) {
    std::vector<size_t> used;
    for (const MatmulOperands& segment : segments_of(product)) {
      if (segment.transposes.a) return false;
      bool found = false;
      for (size_t i = 0; i < terms.size() && !found; ++i) {
        Value this_u;
        if (terms[i].graph == nullptr || !over_segment(terms[i], segment, this_u)) continue;
        if (!used.empty() && !(this_u == u)) continue;
        u = this_u;
        used.push_back(i);
        found = true;
      }
      if (!found) return false;
    }
    for (size_t i : used) terms[i] = {};
    return true;
  }

  // t = col_sum(W ⊙ (col_sum(A ⊙ u))ᵀ) for a plain W, (row_sum(W ⊙ col_sum(A ⊙ u)))ᵀ for a
  // transposed one.
  bool over_segment(Value t, const MatmulOperands& segment, Value& u) const {
    const bool transposed = segment.transposes.b;
    if (is_frozen(t.id) || node(t).op != (transposed ? Op::transpose : Op::col_sum)) return false;
    Value x = operand(t, 0);
    if (transposed) {
      if (node(x).op != Op::row_sum) return false;
      x = operand(x, 0);
    }
    if (!is_call(x, Elementwise::mul) || !(operand(x, 0) == segment.b)) return false;
    double number = 1;
    std::vector<Value> atoms;
    vector_factors(operand(x, 1), number, atoms);
    if (atoms.size() != 1) return false;
    Value sum = atoms[0];
    if (!transposed) {
      if (node(sum).op != Op::transpose) return false;
      sum = operand(sum, 0);
    }
    if (!column_sum_over(sum, segment.a, u)) return false;
    u = mul(u, graph_.constant(number));
    return true;
  }

  Graph& graph_;
  const std::vector<bool>& frozen_;
  std::vector<int> uses_;
  std::vector<Value> values_;  // by node: what was made of it
  std::vector<bool> seen_;
};

}  // namespace

std::vector<int> merge_gemms(Graph& graph, const std::vector<int>& roots,
                             const std::vector<bool>& frozen) {
  MergeGemms pass(graph, roots, frozen);
  std::vector<int> out;
  for (int root : roots) out.push_back(pass.rewrite(root));
  return out;
}

}  // namespace coda
