// SPDX-License-Identifier: Apache-2.0
// What a LLaMA layer saves for its backward, against every legal way to answer the backward's
// needs; and the choice of plan against every other choice.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "plan/llama_cases.h"
#include "plan/partition/inverses.h"
#include "plan/partition/partition.h"
#include "plan/search/search.h"
#include "plan/write/emit.h"

namespace coda {
namespace {

// Values of a joint graph that can be made from one another, as one vertex; how each vertex can be
// had: kept at its cost, or recomputed from others unless a product or an input is in it.
class Ways {
 public:
  Ways(const JointGraph& joint, const DimValues& sizes, double element_bytes)
      : graph_(*joint.graph), parent_(static_cast<size_t>(graph_.size())) {
    std::iota(parent_.begin(), parent_.end(), 0);
    std::vector<int> roots = joint.outputs;
    roots.insert(roots.end(), joint.gradients.begin(), joint.gradients.end());
    const std::vector<bool> live = reached(roots);
    auto tensor = [&](int id) { return graph_.node(id).shape.is_tensor(); };
    auto forward = [&](int id) { return joint.forward[static_cast<size_t>(id)]; };
    const std::vector<InverseLink> links =
        inverse_links(graph_, live, joint.forward, Readers(graph_, live));
    for (int id = 0; id < graph_.size(); ++id) {
      const InverseLink link = links[static_cast<size_t>(id)];
      if (forward(id) && link.operand >= 0)
        parent_[static_cast<size_t>(find(id))] = find(link.operand);
    }
    for (int id = 0; id < graph_.size(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      const Node& n = graph_.node(id);
      if (forward(id) && tensor(id)) add(id, n, sizes, element_bytes);
      for (int operand : n.operands) {
        if (!forward(id) && tensor(operand) && forward(operand)) needs_.insert(index(operand));
      }
    }
  }

  struct Least {
    double bytes = 1e30;
    int64_t ways = 0;
  };
  Least enumerate() {
    least_ = {};
    uint64_t pending = 0;
    for (int need : needs_) pending |= 1ULL << need;
    visit(pending, 0, 0);
    return least_;
  }

 private:
  struct Vertex {
    double cost = 1e30;
    bool recomputed = true;
    uint64_t operands = 0;
  };

  std::vector<bool> reached(const std::vector<int>& roots) const {
    std::vector<bool> live(static_cast<size_t>(graph_.size()), false);
    for (int root : roots) live[static_cast<size_t>(root)] = true;
    for (int id = graph_.size() - 1; id >= 0; --id) {
      if (!live[static_cast<size_t>(id)]) continue;
      for (int operand : graph_.node(id).operands) live[static_cast<size_t>(operand)] = true;
    }
    return live;
  }

  int find(int id) const {
    while (parent_[static_cast<size_t>(id)] != id) id = parent_[static_cast<size_t>(id)];
    return id;
  }

  int index(int id) {
    const auto [entry, is_new] = indices_.try_emplace(find(id), static_cast<int>(vertices_.size()));
    if (is_new) vertices_.emplace_back();
    return entry->second;
  }

  // What lies in memory anyway costs nothing: parameters, tables, views of them.
  void add(int id, const Node& n, const DimValues& sizes, double element_bytes) {
    const int v = index(id);
    int base = id;
    while (is_source(graph_, base) && graph_.node(base).operands.size() > 0 &&
           graph_.node(base).op != Op::result) {
      base = graph_.node(base).operands[0];
    }
    const Node& b = graph_.node(base);
    const bool resident = b.op == Op::input && b.kind != InputKind::activation;
    const double bytes = element_bytes * static_cast<double>(n.shape.rows.evaluate(sizes)) *
                         static_cast<double>(n.shape.cols.evaluate(sizes));
    std::vector<int> operands;
    for (int operand : n.operands) {
      const bool inside = graph_.node(operand).shape.is_tensor() && find(operand) != find(id);
      if (inside && !is_source(graph_, id)) operands.push_back(index(operand));
    }
    Vertex& vertex = vertices_[static_cast<size_t>(v)];
    vertex.cost = std::min(vertex.cost, resident ? 0 : bytes);
    if (is_source(graph_, id) || n.op == Op::matmul) vertex.recomputed = false;
    for (int operand : operands) vertex.operands |= 1ULL << operand;
  }

  void visit(uint64_t pending, uint64_t decided, double bytes) {
    if (pending == 0) {
      ++least_.ways;
      least_.bytes = std::min(least_.bytes, bytes);
      return;
    }
    const int v = __builtin_ctzll(pending);
    const Vertex& vertex = vertices_[static_cast<size_t>(v)];
    decided |= 1ULL << v;
    pending &= ~(1ULL << v);
    visit(pending, decided, bytes + vertex.cost);
    if (vertex.recomputed && vertex.cost > 0) {
      visit((pending | vertex.operands) & ~decided, decided, bytes);
    }
  }

  const Graph& graph_;
  std::vector<int> parent_;
  std::map<int, int> indices_;
  std::vector<Vertex> vertices_;
  std::set<int> needs_;
  Least least_;
};

double tensor_bytes(const JointGraph& joint, const Partition& parts, const DimValues& sizes,
                    double element_bytes) {
  double bytes = 0;
  for (int id : parts.saved) {
    const Graph& graph = *joint.graph;
    const Node& base = graph.node(is_source(graph, id) ? source_base(graph, id) : id);
    if (base.op == Op::input && base.kind != InputKind::activation) continue;
    bytes += element_bytes * static_cast<double>(base.shape.rows.evaluate(sizes)) *
             static_cast<double>(base.shape.cols.evaluate(sizes));
  }
  return bytes;
}

TEST(SavedSets, NoWayToAnswerTheBackwardOfALayerKeepsLess) {
  for (const LlamaCase& c : llama_cases()) {
    if (c.whole || c.objective != Objective::memory) continue;
    for (int bits = 0; bits < 16; ++bits) {
      SCOPED_TRACE(c.name + " choices " + std::to_string(bits));
      Block b;
      CompileOptions options;
      build(c, b, options);
      const auto factor = [bits](int i) {
        return (bits >> i & 1) != 0 ? ColumnFactor::weight : ColumnFactor::producer;
      };
      const Choices choices{{factor(0), factor(1)}, {(bits & 4) != 0, (bits & 8) != 0}};
      const JointGraph joint = rewrite_jointly(b.graph, b.request, choices, true, {}, {}, b.given);
      PartitionRequest request;
      request.joint = &joint;
      request.sizes = options.sizes;
      request.storage_bytes = static_cast<double>(size_of(b.storage));
      const Partition parts = partition(request);
      const Ways::Least least = Ways(joint, options.sizes, request.storage_bytes).enumerate();
      EXPECT_GT(least.ways, 1000);
      EXPECT_EQ(tensor_bytes(joint, parts, options.sizes, request.storage_bytes), least.bytes);
      if (bits == 0) RecordProperty(c.name, std::to_string(least.ways));
    }
  }
}

// What a layer's plan for these choices costs, as compile counts it: saved and moved bytes,
// seconds.
Alternative cost_of_choices(const Block& b, const CompileOptions& options, const Choices& choices,
                            bool save_dropped) {
  const JointGraph joint =
      rewrite_jointly(b.graph, b.request, choices, options.fuse, options.sizes, {}, b.given);
  PartitionRequest request;
  request.joint = &joint;
  request.sizes = options.sizes;
  request.storage_bytes = static_cast<double>(size_of(options.storage));
  Partition parts = partition(request);
  if (save_dropped) {
    request.also_saved.insert(parts.dropped.begin(), parts.dropped.end());
    parts = partition(request);
  }
  const Plan plan = emit(joint, parts, b.request, options);
  Alternative cost;
  cost.saved_bytes = saved_bytes(plan, options.sizes);
  for (const auto* phase : {&plan.forward, &plan.backward}) {
    for (const PlanStep& step : *phase)
      cost.seconds += cost_of(step, plan, options.sizes, options.rates).seconds;
  }
  return cost;
}

// The search descends one choice at a time; here are all combinations: each norm's weight at the
// producer, in the product's weight or before the product; both routes of each row factor; what
// would be recomputed, saved or not.
TEST(SavedSets, NoOtherChoiceOfALayerIsBetterByTheModel) {
  for (const LlamaCase& c : llama_cases()) {
    if (c.whole) continue;
    Block b;
    CompileOptions options;
    build(c, b, options);
    const Compiled chosen = compile(b.graph, b.request, options, {.given = b.given});
    const auto best = std::find_if(chosen.alternatives.begin(), chosen.alternatives.end(),
                                   [](const Alternative& a) { return a.chosen; });
    ASSERT_NE(best, chosen.alternatives.end());
    const Candidates found =
        rewrite_jointly(b.graph, b.request, {}, true, options.sizes, {}, b.given).candidates;
    ASSERT_EQ(found.column_factors.size(), 2) << "enumerated below";
    const bool by_memory = c.objective == Objective::memory;
    bool best_is_enumerated = false;
    for (int i = 0; i < 3 * 3 * 2 * 2 * 2; ++i) {
      const Choices choices{
          {static_cast<ColumnFactor>(i % 3), static_cast<ColumnFactor>(i / 3 % 3)},
          {i / 9 % 2 != 0, i / 18 % 2 != 0}};
      const Alternative other = cost_of_choices(b, options, choices, i / 36 != 0);
      const double tiny = 1e-9 * other.seconds;
      const bool saves_less = best->saved_bytes < other.saved_bytes;
      const bool saves_as_little = best->saved_bytes <= other.saved_bytes;
      const bool is_faster = best->seconds <= other.seconds + tiny;
      EXPECT_TRUE(by_memory ? saves_less || (saves_as_little && is_faster) : is_faster)
          << c.name << ", choices " << i << ": " << best->choice << " saves " << best->saved_bytes
          << " bytes and takes " << best->seconds << " s, this one " << other.saved_bytes << " and "
          << other.seconds;
      best_is_enumerated = best_is_enumerated || (best->saved_bytes == other.saved_bytes &&
                                                  std::abs(best->seconds - other.seconds) <= tiny);
    }
    EXPECT_TRUE(best_is_enumerated) << c.name << ": " << best->choice;
  }
}

}  // namespace
}  // namespace coda
