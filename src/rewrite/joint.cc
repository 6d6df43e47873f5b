// SPDX-License-Identifier: Apache-2.0
#include "rewrite/joint.h"

#include <algorithm>
#include <set>

#include "coda/error.h"
#include "grad/differentiate.h"
#include "ir/calls.h"
#include "ir/rebuild.h"
#include "ir/verify_graph.h"
#include "rewrite/merge_gemms.h"
#include "rewrite/sink_scales.h"

namespace coda {
namespace {

// A model takes three. A round more joins one more term of a long sum of equal ones; where rules
// undo one another any round's graph is as right as the next.
constexpr int kMostRounds = 64;

std::vector<int> to_fixed_point(Graph& graph, std::vector<int> roots, const Choices& choices,
                                const std::vector<bool>& frozen, Candidates& candidates) {
  const SinkScalesOptions options{&choices, frozen};
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<int> next =
        merge_gemms(graph, sink_scales(graph, roots, options, candidates), frozen);
#ifndef NDEBUG
    verify(graph, next);
#endif
    if (next == roots) return roots;
    roots = std::move(next);
  }
  return roots;
}

// x + 0 as a node of its own, which no builder makes.
int copy_of(Graph& graph, int id) {
  Node copy{.op = Op::elementwise,
            .shape = graph.node(id).shape,
            .operands = {id, graph.constant(0).id},
            .fn = Elementwise::add};
  return graph.intern(std::move(copy));
}

// Some calls add to what a tensor holds; others write over it.
bool is_result_that_adds_nothing(const Graph& graph, int id) {
  const Node& n = graph.node(id);
  return n.op == Op::result && !can_add(graph.node(n.operands[0]));
}

// A gradient is written to a tensor of its own, a concatenation part by part: of a value that
// another tensor takes already (biases side by side have equal gradients), of an input or a
// constant (a bias under a mean over rows), and of what cannot be added to the tensor where
// `accumulate`, a copy is written.
int claim(Graph& graph, int id, bool accumulate, std::set<int>& claimed) {
  if (graph.node(id).op == Op::concat_columns) {
    Node whole = graph.node(id);
    for (int& part : whole.operands) part = claim(graph, part, accumulate, claimed);
    id = graph.intern(std::move(whole));
  }
  if (accumulate && is_result_that_adds_nothing(graph, id)) id = copy_of(graph, id);
  while (graph.node(id).operands.empty() || !claimed.insert(id).second) id = copy_of(graph, id);
  return id;
}

// A call writes all of its results, read or not: each is a node.
void add_results(JointGraph& joint) {
  Graph& graph = *joint.graph;
  for (int id = 0, size = graph.size(); id < size; ++id) {
    const Node& call = graph.node(id);
    for (size_t i = 0; i < call.results.size(); ++i) {
      Node result{.op = Op::result,
                  .shape = call.results[i],
                  .operands = {id},
                  .which = static_cast<int>(i)};
      graph.intern(std::move(result));
      joint.forward.resize(static_cast<size_t>(graph.size()),
                           joint.forward[static_cast<size_t>(id)]);
    }
  }
}

// An output that depends on an input as it is written, and no more when terms have cancelled (x -
// x), or through comparisons alone, has a gradient that is zero.
void zero_what_cancels(const Graph& source, const CompileRequest& request, Graph& graph,
                       std::vector<Value>& gradients) {
  std::vector<int> outputs;
  for (const SeededOutput& seed : request.seeds) outputs.push_back(seed.output.id);
  const std::vector<bool> reached = reached_from(source, outputs);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int input = request.gradients[i].input.id;
    if (gradients[i].graph != nullptr || !reached[static_cast<size_t>(input)]) continue;
    gradients[i] = less(graph.value(input), graph.value(input));
  }
}

}  // namespace

JointGraph rewrite_jointly(const Graph& source, const CompileRequest& request,
                           const Choices& choices, bool rewritten, const DimValues& sizes,
                           const AcceptRowBlocks& accept, const std::vector<NamedValue>& given,
                           const LayerStarts& starts) {
  JointGraph joint;
  joint.graph = std::make_unique<Graph>();
  clone(source, *joint.graph);
  Graph& graph = *joint.graph;

  // Seeded outputs are roots too: they are differentiated as they stand after the rewriting.
  std::vector<int> roots;
  for (const NamedValue& output : request.outputs) roots.push_back(output.value.id);
  for (const SeededOutput& seed : request.seeds) roots.push_back(seed.output.id);
  const size_t first_start = roots.size();
  for (const std::vector<int>& of_layer : starts)
    roots.insert(roots.end(), of_layer.begin(), of_layer.end());
  for (const NamedValue& vector : given) {
    require(vector.value.shape().is_per_row(),
            "given \"" + vector.name + "\" is no per-row vector");
    roots.push_back(vector.value.id);
  }
  if (rewritten) {
    // A factor that waits for its norm must be known where the norm stands, before any product was
    // seen behind it: the candidates are found first, on nodes that are then dead.
    const bool any_waits = std::find(choices.column_factors.begin(), choices.column_factors.end(),
                                     ColumnFactor::normalise_first) != choices.column_factors.end();
    if (any_waits) to_fixed_point(graph, roots, Choices{}, {}, joint.candidates);
    roots = to_fixed_point(graph, roots, choices, {}, joint.candidates);
  }
  joint.outputs.assign(roots.begin(),
                       roots.begin() + static_cast<std::ptrdiff_t>(request.outputs.size()));
  for (size_t i = 0; i < request.seeds.size(); ++i) {
    const int id = roots[request.outputs.size() + i];
    if (std::find(joint.outputs.begin(), joint.outputs.end(), id) != joint.outputs.end())
      joint.seeded.insert(id);
  }
  joint.forward = reached_from(graph, roots);

  std::vector<Seed> seeds;
  std::vector<int> wanted;
  for (size_t i = 0; i < request.seeds.size(); ++i) {
    seeds.push_back(
        {roots[request.outputs.size() + i], graph.value(request.seeds[i].cotangent.id)});
  }
  for (const GradientRequest& gradient : request.gradients) wanted.push_back(gradient.input.id);
  std::vector<Value> gradients = differentiate(graph, seeds, wanted);
  zero_what_cancels(source, request, graph, gradients);
  std::vector<int> gradient_roots;
  for (const Value& g : gradients) {
    if (g.graph != nullptr) gradient_roots.push_back(g.id);
  }
  if (rewritten) {
    gradient_roots =
        to_fixed_point(graph, gradient_roots, choices, joint.forward, joint.candidates);
  }
  if (!starts.empty()) {
    joint.starts = starts;
    size_t root = first_start;
    for (std::vector<int>& of_layer : joint.starts)
      for (int& id : of_layer) id = roots[root++];
    joint.forward.resize(static_cast<size_t>(graph.size()), false);
    gradient_roots = recompute_layers(graph, joint.forward, joint.starts, gradient_roots);
  }
  std::set<int> claimed(joint.outputs.begin(), joint.outputs.end());
  if (accept) {
    joint.forward.resize(static_cast<size_t>(graph.size()), false);
    joint.row_blocks = find_row_block_values(joint, request, gradient_roots, sizes);
    if (!accept(joint)) joint.row_blocks = {};
    for (int id : joint.row_blocks.early) {
      joint.forward[static_cast<size_t>(id)] = true;
      if (!joint.row_blocks.may_be_gradient(id)) claimed.insert(id);
    }
  }
  size_t next = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].graph == nullptr) {
      joint.gradients.push_back(-1);
      continue;
    }
    joint.gradients.push_back(
        claim(graph, gradient_roots[next++], request.gradients[i].accumulate, claimed));
  }
  joint.forward.resize(static_cast<size_t>(graph.size()), false);
  add_results(joint);
  for (size_t i = 0; i < given.size(); ++i) {
    graph.become_input(roots[roots.size() - given.size() + i], given[i].name);
  }
  return joint;
}

}  // namespace coda
