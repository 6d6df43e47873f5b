// SPDX-License-Identifier: Apache-2.0
#include "rewrite/recompute_layers.h"

#include <utility>

#include "ir/rebuild.h"

namespace coda {
namespace {

class Runner {
 public:
  Runner(Graph& graph, const std::vector<bool>& forward, const LayerStarts& starts)
      : graph_(graph),
        forward_(forward),
        is_read_(static_cast<size_t>(graph.size()), true),
        again_(static_cast<size_t>(graph.size()), -1) {
    std::vector<int> first_start(is_read_.size(), -1);  // the first layer that starts from a node
    for (size_t i = starts.size(); i > 0; --i)
      for (int id : starts[i - 1]) first_start[static_cast<size_t>(id)] = static_cast<int>(i) - 1;
    const int last = static_cast<int>(starts.size()) - 1;
    std::vector<bool> is_behind(is_read_.size(), false);  // the last layer
    for (int id = 0; id < graph.size(); ++id) {
      const auto at = static_cast<size_t>(id);
      if (!forward_[at]) continue;
      const Node& node = graph.node(id);
      bool has_product = is_product(node);
      for (int operand : node.operands) {
        const auto from = static_cast<size_t>(operand);
        if (is_behind[from] || first_start[from] == last) is_behind[at] = true;
        has_product = has_product || !is_read_[from];
      }
      is_read_[at] = !has_product || is_behind[at] || first_start[at] >= 0;
    }
  }

  std::vector<int> run(const std::vector<int>& gradients) {
    const std::vector<bool> live = reached_from(graph_, gradients);
    std::vector<int> made(live.size(), -1);
    for (size_t id = 0; id < live.size(); ++id) {
      made[id] = static_cast<int>(id);
      if (!live[id] || is_forward(static_cast<int>(id))) continue;
      Node node = graph_.node(static_cast<int>(id));
      for (int& operand : node.operands)
        operand = is_forward(operand) ? again(operand) : made[static_cast<size_t>(operand)];
      if (node.operands != graph_.node(static_cast<int>(id)).operands)
        made[id] = graph_.intern(std::move(node));
    }
    std::vector<int> out;
    for (int id : gradients) out.push_back(made[static_cast<size_t>(id)]);
    return out;
  }

 private:
  bool is_forward(int id) const {
    return id < static_cast<int>(forward_.size()) && forward_[static_cast<size_t>(id)];
  }

  static bool is_product(const Node& node) {
    return node.op == Op::matmul || node.op == Op::opaque;
  }

  int again(int id) {
    const auto at = static_cast<size_t>(id);
    if (is_read_[at]) return id;
    if (again_[at] >= 0) return again_[at];
    Node node = graph_.node(id);
    for (int& operand : node.operands) operand = again(operand);
    if (is_product(node)) node.which = 1;
    const int made = graph_.intern(std::move(node));
    again_[at] = made;
    return made;
  }

  Graph& graph_;
  const std::vector<bool>& forward_;
  // By id: the forward's node is read, because it is a start, takes no product since one, or stands
  // behind the last layer.
  std::vector<bool> is_read_;
  std::vector<int> again_;  // by id of a forward node: its recomputed node
};

}  // namespace

std::vector<int> recompute_layers(Graph& graph, const std::vector<bool>& forward,
                                  const LayerStarts& starts, const std::vector<int>& gradients) {
  return Runner(graph, forward, starts).run(gradients);
}

}  // namespace coda
