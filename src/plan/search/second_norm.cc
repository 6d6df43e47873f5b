// SPDX-License-Identifier: Apache-2.0
// Follows each factor forward and classifies what depends on it.
#include "plan/search/second_norm.h"

#include <algorithm>

namespace coda {
namespace {

// The relation of a node to w: independent; w itself or computed from it (x ⊙ w, h); computed from
// a GEMM of that; a reduction of its rows, or computed from one.
enum class Origin : uint8_t { elsewhere, factor, product, statistic };

class Followed {
 public:
  explicit Followed(const Graph& graph)
      : graph_(graph),
        origin_(static_cast<size_t>(graph.size()), Origin::elsewhere),
        last_reader_(origin_.size(), -1) {
    for (int id = 0; id < graph.size(); ++id) {
      for (int operand : graph.node(id).operands) last_reader_[static_cast<size_t>(operand)] = id;
    }
  }

  // Follows only nodes that depend on w, so that a layer's factor does not lead through all later
  // layers.
  bool reaches_a_norm(int w) {
    origin_[static_cast<size_t>(w)] = Origin::factor;
    int last = last_reader_[static_cast<size_t>(w)];
    bool found = false;
    int id = w + 1;
    for (; id <= last && !found; ++id) {
      const Node& n = graph_.node(id);
      const Origin o = origin_of(n);
      origin_[static_cast<size_t>(id)] = o;
      if (o != Origin::elsewhere) last = std::max(last, last_reader_[static_cast<size_t>(id)]);
      const bool root = n.op == Op::elementwise && n.fn == Elementwise::rsqrt;
      found = root && o == Origin::statistic;
    }
    std::fill(origin_.begin() + w, origin_.begin() + id, Origin::elsewhere);
    return found;
  }

 private:
  Origin of(int id) const { return origin_[static_cast<size_t>(id)]; }

  Origin origin_of(const Node& n) const {
    switch (n.op) {
      case Op::matmul: return of_product(n);
      case Op::row_sum:
      case Op::row_reduce:
      case Op::group_sum:
        return of(n.operands[0]) >= Origin::product ? Origin::statistic : Origin::elsewhere;
      case Op::elementwise:
      case Op::concat_columns: return of_elements(n);
      case Op::split_pair:
      case Op::merge_pairs:
      case Op::slice_columns:
      case Op::repeat_columns:
      case Op::group_repeat: return of(n.operands[0]);
      default: return Origin::elsewhere;
    }
  }

  // Every segment's left operand must depend on w; weights are on the right.
  Origin of_product(const Node& n) const {
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      if (n.transposes[s].a || of(n.operands[2 * s]) == Origin::elsewhere) return Origin::elsewhere;
    }
    return n.shape.is_tensor() ? Origin::product : Origin::elsewhere;
  }

  Origin of_elements(const Node& n) const {
    const bool sum =
        n.op == Op::elementwise && (n.fn == Elementwise::add || n.fn == Elementwise::sub);
    Origin most = Origin::elsewhere;
    for (int operand : n.operands) {
      const bool stream = graph_.node(operand).shape.is_tensor();
      if (sum && stream && of(operand) == Origin::elsewhere) return Origin::elsewhere;
      // A norm's result is classified as the tensor that it normalises.
      const bool vector_of_tensor = !stream && n.shape.is_tensor();
      if (vector_of_tensor && of(operand) == Origin::statistic) continue;
      most = std::max(most, of(operand));
    }
    return most;
  }

  const Graph& graph_;
  std::vector<Origin> origin_;
  std::vector<int> last_reader_;  // by id; -1: none
};

}  // namespace

std::vector<bool> has_second_norm(const Graph& graph, const std::vector<int>& factors) {
  Followed followed(graph);
  std::vector<bool> found;
  for (int w : factors) found.push_back(w < graph.size() && followed.reaches_a_norm(w));
  return found;
}

}  // namespace coda
