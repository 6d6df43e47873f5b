// SPDX-License-Identifier: Apache-2.0
// The period is the smallest one at which the middle of the graph equals the part before it.
#include "plan/search/repeated_layers.h"

#include <map>

#include "ir/rebuild.h"

namespace coda {
namespace {

// Compares everything except the operands.
bool does_the_same(const Node& a, const Node& b) {
  return a.op == b.op && a.fn == b.fn && a.reduction == b.reduction && a.shape == b.shape &&
         a.number == b.number && a.dim == b.dim && a.which == b.which && a.repeat == b.repeat &&
         a.transposes == b.transposes && a.name == b.name && a.attributes == b.attributes &&
         a.sizes == b.sizes && a.results == b.results && a.operands.size() == b.operands.size();
}

std::vector<int> roots_of(const CompileRequest& request) {
  std::vector<int> roots;
  for (const NamedValue& output : request.outputs) roots.push_back(output.value.id);
  for (const SeededOutput& seed : request.seeds) {
    roots.push_back(seed.output.id);
    roots.push_back(seed.cotangent.id);
  }
  for (const GradientRequest& gradient : request.gradients) roots.push_back(gradient.input.id);
  return roots;
}

// Places are indices into `computed`.
class LayerFinder {
 public:
  LayerFinder(const Graph& graph, const CompileRequest& request)
      : graph_(graph), place_(static_cast<size_t>(graph.size()), -1) {
    const std::vector<bool> live = reached_from(graph, roots_of(request));
    for (int id = 0; id < graph.size(); ++id) {
      if (!live[static_cast<size_t>(id)] || graph.node(id).operands.empty()) continue;
      place_[static_cast<size_t>(id)] = static_cast<int64_t>(found_.computed.size());
      found_.computed.push_back(id);
    }
  }

  std::optional<RepeatedLayers> run(int least) {
    const size_t size = found_.computed.size();
    for (size_t period = 1; period <= size / static_cast<size_t>(least); ++period) {
      extend(period);
      const size_t length = found_.end - found_.begin;
      found_.copies = static_cast<int>(length / period);
      if (found_.copies >= least && 2 * length >= size) return std::move(found_);
    }
    return std::nullopt;
  }

 private:
  // Extends the repetition with this period from the middle in both directions.
  void extend(size_t period) {
    found_.period = period;
    next_.clear();
    last_.clear();
    const size_t middle = found_.computed.size() / 2;
    found_.end = middle;
    while (found_.end < found_.computed.size() && is_copy(found_.end)) ++found_.end;
    found_.begin = middle - period;
    while (found_.begin > 0 && is_copy(found_.begin + period - 1)) --found_.begin;
  }

  // Whether the node equals the one a period earlier.
  bool is_copy(size_t place) {
    const Node& before = graph_.node(found_.computed[place - found_.period]);
    const Node& node = graph_.node(found_.computed[place]);
    if (!does_the_same(before, node)) return false;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!corresponds(before.operands[i], node.operands[i])) return false;
    }
    return true;
  }

  bool corresponds(int before, int id) {
    if (before == id) return !next_.contains(id) && !last_.contains(id);
    const int64_t place = place_[static_cast<size_t>(id)];
    const int64_t place_before = place_[static_cast<size_t>(before)];
    if (place >= 0 && place_before >= 0)
      return place - place_before == static_cast<int64_t>(found_.period);
    const Node& a = graph_.node(before);
    const Node& b = graph_.node(id);
    const bool alike = a.op == Op::input && b.op == Op::input && a.kind == InputKind::parameter &&
                       b.kind == a.kind && a.shape == b.shape && a.dtype == b.dtype;
    return alike && next_.try_emplace(before, id).first->second == id &&
           last_.try_emplace(id, before).first->second == before;
  }

  const Graph& graph_;
  std::vector<int64_t> place_;  // by id; -1: not computed, or not live
  RepeatedLayers found_;
  std::map<int, int> next_;  // a parameter of a layer -> that of the next layer
  std::map<int, int> last_;  // its inverse
};

}  // namespace

std::optional<RepeatedLayers> find_repeated_layers(const Graph& graph,
                                                   const CompileRequest& request, int least) {
  return LayerFinder(graph, request).run(least);
}

std::optional<FewerLayers> with_copies(const Graph& graph, const CompileRequest& request,
                                       const RepeatedLayers& layers, int copies) {
  // Removes the places [begin, end).
  const size_t begin = layers.begin + static_cast<size_t>(copies / 2) * layers.period;
  const size_t left_out = static_cast<size_t>(layers.copies - copies) * layers.period;
  const size_t end = begin + left_out;
  std::vector<int> place(static_cast<size_t>(graph.size()), -1);
  for (size_t i = 0; i < layers.computed.size(); ++i)
    place[static_cast<size_t>(layers.computed[i])] = static_cast<int>(i);
  const auto is_left_out = [&](int id) {
    const int at = place[static_cast<size_t>(id)];
    return at >= static_cast<int>(begin) && at < static_cast<int>(end);
  };
  // Finds parameters that only removed layers read.
  std::vector<int> read(static_cast<size_t>(graph.size()), 0);  // 1: by what is left out; 2: else
  for (int id : layers.computed) {
    for (int operand : graph.node(id).operands) {
      int& by = read[static_cast<size_t>(operand)];
      by = is_left_out(id) && by != 2 ? 1 : 2;
    }
  }

  FewerLayers fewer;
  std::vector<int> copy(static_cast<size_t>(graph.size()), -1);
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    int& made = copy[static_cast<size_t>(id)];
    if (n.op == Op::input) {
      if (read[static_cast<size_t>(id)] != 1)
        made = fewer.graph.input(n.name, n.shape, n.dtype, n.kind).id;
      continue;
    }
    const bool is_leaf = n.operands.empty();
    const int at = place[static_cast<size_t>(id)];
    if (!is_leaf && (at < 0 || is_left_out(id))) continue;
    Node node = n;
    for (int& operand : node.operands) {
      if (is_left_out(operand)) {
        // The first copy after the gap reads what the gap's first copy read.
        const int before = place[static_cast<size_t>(operand)] - static_cast<int>(left_out);
        if (at >= static_cast<int>(layers.end) || before < 0) return std::nullopt;
        const int stands_in = layers.computed[static_cast<size_t>(before)];
        if (!does_the_same(graph.node(operand), graph.node(stands_in))) return std::nullopt;
        operand = stands_in;
      }
      operand = copy[static_cast<size_t>(operand)];
      if (operand < 0) return std::nullopt;
    }
    made = fewer.graph.intern(std::move(node));
  }

  const auto value = [&](Value v) {
    return Value{&fewer.graph, v.id < 0 ? -1 : copy[static_cast<size_t>(v.id)]};
  };
  for (const NamedValue& output : request.outputs) {
    fewer.request.outputs.push_back({output.name, value(output.value), output.dtype});
    if (fewer.request.outputs.back().value.id < 0) return std::nullopt;
  }
  for (const SeededOutput& seed : request.seeds) {
    fewer.request.seeds.push_back({value(seed.output), value(seed.cotangent), seed.is_early});
    if (fewer.request.seeds.back().output.id < 0 || fewer.request.seeds.back().cotangent.id < 0)
      return std::nullopt;
  }
  for (const GradientRequest& gradient : request.gradients) {
    GradientRequest kept = gradient;
    kept.input = value(gradient.input);
    if (kept.input.id >= 0) fewer.request.gradients.push_back(std::move(kept));
  }
  return fewer;
}

}  // namespace coda
