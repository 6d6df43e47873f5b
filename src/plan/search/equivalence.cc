// SPDX-License-Identifier: Apache-2.0
// A class key is the text of the expressions around a candidate, without names.
#include "plan/search/equivalence.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace coda {
namespace {

// The depth of the compared surroundings: deep enough to distinguish the norms of a layer by their
// inputs, too shallow to distinguish layers. A norm's reciprocal is five operations after the
// stream.
constexpr int kOwnDepth = 6;
constexpr int kUserDepth = 2;

// The expression of a node without names, cut off at a depth.
std::string shape_of_expression(const Graph& graph, int id, int depth) {
  const Node& n = graph.node(id);
  std::string text = std::to_string(static_cast<int>(n.op)) + "." +
                     std::to_string(static_cast<int>(n.fn)) + "." +
                     std::to_string(static_cast<int>(n.reduction)) + n.shape.text();
  if (depth == 0) return text;
  std::vector<std::string> operands;
  for (int operand : n.operands) {
    operands.push_back(shape_of_expression(graph, operand, depth - 1));
  }
  if (n.op == Op::elementwise) std::sort(operands.begin(), operands.end());
  text += "(";
  for (const std::string& operand : operands) text += operand + ",";
  return text + ")";
}

}  // namespace

CandidateClasses classify(const JointGraph& joint) {
  const Graph& graph = *joint.graph;
  // For a factor: the tensors that it multiplies, and the GEMMs that read those.
  std::set<int> candidates(joint.candidates.column_factors.begin(),
                           joint.candidates.column_factors.end());
  candidates.insert(joint.candidates.row_factors.begin(), joint.candidates.row_factors.end());
  std::map<int, std::set<std::string>> users;
  std::map<int, int> factor_of;  // scaled tensor -> its factor
  for (int id = 0; id < graph.size(); ++id) {
    if (!joint.forward[static_cast<size_t>(id)]) continue;
    const Node& n = graph.node(id);
    for (int operand : n.operands) {
      auto scaled = factor_of.find(operand);
      if (scaled != factor_of.end()) {
        users[scaled->second].insert(shape_of_expression(graph, id, 0));
      }
      if (!candidates.contains(operand)) continue;
      users[operand].insert(shape_of_expression(graph, id, kUserDepth));
      factor_of[id] = operand;
    }
  }
  auto keys_of = [&](const std::vector<int>& candidates) {
    std::vector<std::string> keys;
    for (int id : candidates) {
      std::string key = shape_of_expression(graph, id, kOwnDepth);
      for (const std::string& user : users[id]) key += "|" + user;
      keys.push_back(key);
    }
    return keys;
  };
  return {keys_of(joint.candidates.column_factors), keys_of(joint.candidates.row_factors)};
}

}  // namespace coda
