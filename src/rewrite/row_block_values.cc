// SPDX-License-Identifier: Apache-2.0
#include "rewrite/row_block_values.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "ir/calls.h"
#include "ir/readers.h"
#include "ir/rebuild.h"
#include "rewrite/joint.h"

namespace coda {
namespace {

class Finder {
 public:
  Finder(const JointGraph& joint, const CompileRequest& request, const std::vector<int>& gradients,
         const DimValues& sizes)
      : joint_(joint), graph_(*joint.graph), sizes_(sizes) {
    std::vector<int> roots = joint.outputs;
    for (int g : gradients) {
      if (g >= 0) roots.push_back(g);
    }
    live_ = reached_from(graph_, roots);
    readers_.emplace(graph_, live_);
    find_waiting(request);
    blocks_.may_write_gradients = may_write(request);
  }

  RowBlockValues run() {
    blocks_.widest = find_widest();
    if (blocks_.widest < 0) {
      blocks_.refusal = "every product of the backward waits for the upstream gradient";
      return blocks_;
    }
    blocks_.symbol = graph_.node(blocks_.widest).shape.rows.text();
    collect_values();
    for (int v : blocks_.values) look_at_readers(v);
    if (!blocks_.refusal.empty()) {
      RowBlockValues none;
      none.refusal = blocks_.refusal;
      return none;
    }
    blocks_.early.assign(early_.begin(), early_.end());
    return blocks_;
  }

 private:
  bool live(int id) const { return live_[static_cast<size_t>(id)]; }
  bool waits(int id) const { return waits_[static_cast<size_t>(id)]; }
  bool is_forward(int id) const { return joint_.forward[static_cast<size_t>(id)]; }
  bool is_leaf(int id) const {
    const Op op = graph_.node(id).op;
    return op == Op::input || op == Op::result;
  }
  std::string describe(int id) const {
    const Node& n = graph_.node(id);
    return (n.op == Op::matmul   ? "a product "
            : n.op == Op::opaque ? n.name + " "
                                 : "a value ") +
           n.shape.text();
  }
  void refuse(const std::string& why) {
    if (blocks_.refusal.empty()) blocks_.refusal = why;
  }

  // Nodes that depend on what only the backward is given.
  void find_waiting(const CompileRequest& request) {
    std::vector<int> seeds;
    for (const SeededOutput& seed : request.seeds) seeds.push_back(seed.cotangent.id);
    const std::vector<bool> of_seeds = reached_from(graph_, seeds);
    waits_.assign(static_cast<size_t>(graph_.size()), false);
    for (int id = 0; id < graph_.size(); ++id) {
      const auto i = static_cast<size_t>(id);
      waits_[i] = graph_.node(id).op == Op::input && of_seeds[i] && !is_forward(id);
      for (int o : graph_.node(id).operands) waits_[i] = waits_[i] || waits(o);
    }
  }

  // Whether the forward may write the caller's gradients, block after block: it knows all that they
  // are multiplied by, they hold nothing that is added to, and adding rounds to fp32.
  static bool may_write(const CompileRequest& request) {
    return std::ranges::all_of(request.seeds, &SeededOutput::is_early) &&
           std::ranges::all_of(request.gradients, [](const GradientRequest& g) {
             return !g.accumulate && g.dtype == DType::f32;
           });
  }

  // The largest computed operand, with a symbol of rows, of the backward's products that wait for
  // nothing.
  int find_widest() const {
    int widest = -1;
    double most = 0;
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live(id) || is_forward(id) || waits(id) || graph_.node(id).op != Op::matmul) continue;
      for (int o : graph_.node(id).operands) {
        const Shape& shape = graph_.node(o).shape;
        if (is_leaf(o) || !is_symbol(shape.rows)) continue;
        const double size = static_cast<double>(shape.rows.evaluate(sizes_)) *
                            static_cast<double>(shape.cols.evaluate(sizes_));
        if (size > most) most = size, widest = o;
      }
    }
    return widest;
  }

  static bool is_symbol(const Dim& dim) {
    return dim.terms().size() == 1 && dim == Dim(dim.terms().begin()->first);
  }

  // Everything that is linked to the widest value without a product between.
  void collect_values() {
    std::set<int> seen;
    std::vector<int> pending{blocks_.widest};
    const auto visit = [&](int id) {
      const bool has_rows =
          graph_.node(id).shape.is_tensor() && graph_.node(id).shape.rows == Dim(blocks_.symbol);
      if (has_rows && live(id) && !is_leaf(id)) pending.push_back(id);
    };
    while (!pending.empty()) {
      const int id = pending.back();
      pending.pop_back();
      if (!seen.insert(id).second) continue;
      const Node& n = graph_.node(id);
      if (n.op != Op::matmul) std::for_each(n.operands.begin(), n.operands.end(), visit);
      for (int reader : readers_->of(id)) {
        if (graph_.node(reader).op != Op::matmul) visit(reader);
      }
    }
    blocks_.values.assign(seen.begin(), seen.end());
    of_values_.assign(static_cast<size_t>(graph_.size()), false);
    for (int id = 0; id < graph_.size(); ++id) {
      const std::vector<int>& operands = graph_.node(id).operands;
      of_values_[static_cast<size_t>(id)] =
          seen.contains(id) || std::ranges::any_of(operands, [this](int o) {
            return of_values_[static_cast<size_t>(o)];
          });
    }
  }

  void look_at_readers(int value) {
    if (waits(value)) {
      return refuse(describe(value) + " that is made of it waits for the upstream gradient");
    }
    need(value);
    for (int reader : readers_->of(value)) {
      const Node& n = graph_.node(reader);
      if (n.op == Op::opaque) return refuse(n.name + " reads it whole");
      if (waits(reader)) {
        return refuse(describe(reader) + " that reads it waits for the upstream gradient");
      }
      need(reader);
      if (n.op == Op::matmul) look_at_product(reader, value);
    }
  }

  // A product reads its rows (as the left operand) or sums over them.
  void look_at_product(int id, int value) {
    const Node& n = graph_.node(id);
    bool sums = false;
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      const bool over_rows = n.transposes[s].a && !n.transposes[s].b;
      const bool reads = n.operands[2 * s] == value || n.operands[2 * s + 1] == value;
      if (reads && !over_rows && (n.operands[2 * s + 1] == value || n.transposes[s].a)) {
        return refuse(describe(id) + " reads it along its columns");
      }
      sums = sums || over_rows;
    }
    if (!sums) return;
    for (int reader : readers_->of(id)) {
      if (graph_.node(reader).op == Op::opaque) refuse(describe(reader) + " reads its products");
    }
    const int sum = blocks_.may_write_gradients ? multiple_of(id) : id;
    need(sum);
    if (std::find(blocks_.sums.begin(), blocks_.sums.end(), sum) == blocks_.sums.end())
      blocks_.sums.push_back(sum);
  }

  // What a product is multiplied by on its way to a gradient, done with each block of it: a sum of
  // multiples is the multiple of the sum. The product itself where a call reads the multiple for
  // more than to add to it.
  int multiple_of(int product) const {
    int end = product;
    while (true) {
      const std::span<const int> readers = readers_->of(end);
      if (readers.size() != 1) break;
      const Node& n = graph_.node(readers[0]);
      if (n.op != Op::elementwise || n.fn != Elementwise::mul) break;
      const int factor = n.operands[0] == end ? n.operands[1] : n.operands[0];
      if (!is_known(factor)) break;
      end = readers[0];
    }
    const bool calls_add = std::ranges::all_of(readers_->of(end), [&](int reader) {
      const Node& n = graph_.node(reader);
      return n.op != Op::opaque || (adds(n) && n.operands.back() == end);
    });
    return calls_add ? end : product;
  }

  // A number or a vector that is known before the first block: of the forward, but of none of the
  // values, or made of such.
  bool is_known(int id) const {
    const Node& n = graph_.node(id);
    if (n.shape.is_tensor()) return false;
    if (is_forward(id)) return !of_values_[static_cast<size_t>(id)];
    const bool is_made_anywhere = n.op == Op::input || n.op == Op::constant ||
                                  n.op == Op::reciprocal_dim || n.op == Op::elementwise;
    return is_made_anywhere &&
           std::ranges::all_of(n.operands, [this](int o) { return is_known(o); });
  }

  // Backward nodes that `id` is made of, itself included, run early.
  void need(int id) {
    if (is_forward(id) || !early_.insert(id).second) return;
    for (int o : graph_.node(id).operands) need(o);
  }

  const JointGraph& joint_;
  const Graph& graph_;
  const DimValues& sizes_;
  RowBlockValues blocks_;
  std::vector<bool> live_;
  std::optional<Readers> readers_;
  std::vector<bool> waits_;
  std::vector<bool> of_values_;  // nodes that depend on the values, and these
  std::set<int> early_;
};

}  // namespace

bool RowBlockValues::may_be_gradient(int id) const {
  return may_write_gradients && std::ranges::find(sums, id) != sums.end();
}

RowBlockValues find_row_block_values(const JointGraph& joint, const CompileRequest& request,
                                     const std::vector<int>& gradients, const DimValues& sizes) {
  return Finder(joint, request, gradients, sizes).run();
}

}  // namespace coda
