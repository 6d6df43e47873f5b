// SPDX-License-Identifier: Apache-2.0
// Dinic's algorithm over the split graph: vertex v is an edge from 2v to 2v + 1 of its capacity.
#include "plan/min_cut.h"

#include <algorithm>
#include <queue>

namespace coda {
namespace {

class Network {
 public:
  explicit Network(int nodes) : heads_(static_cast<size_t>(nodes)) {}

  void connect(int from, int to, double capacity) {
    heads_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    heads_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }

  void saturate(int source, int sink) {
    while (find_levels(source, sink)) {
      next_.assign(heads_.size(), 0);
      while (push(source, sink, kNever) > 0) {
      }
    }
  }

  // Nodes that can still reach the sink.
  std::vector<bool> reaching(int sink) const {
    std::vector<bool> reached(heads_.size(), false);
    std::queue<int> pending;
    reached[static_cast<size_t>(sink)] = true;
    pending.push(sink);
    while (!pending.empty()) {
      const int node = pending.front();
      pending.pop();
      for (int e : heads_[static_cast<size_t>(node)]) {
        const int from = edges_[static_cast<size_t>(e)].to;
        const bool open = edges_[static_cast<size_t>(e ^ 1)].capacity > kTiny;
        if (open && !reached[static_cast<size_t>(from)]) {
          reached[static_cast<size_t>(from)] = true;
          pending.push(from);
        }
      }
    }
    return reached;
  }

 private:
  struct Edge {
    int to;
    double capacity;
  };
  static constexpr double kTiny = 1e-6;  // bytes

  bool find_levels(int source, int sink) {
    level_.assign(heads_.size(), -1);
    level_[static_cast<size_t>(source)] = 0;
    std::queue<int> pending;
    pending.push(source);
    while (!pending.empty()) {
      const int node = pending.front();
      pending.pop();
      for (int e : heads_[static_cast<size_t>(node)]) {
        const Edge& edge = edges_[static_cast<size_t>(e)];
        if (edge.capacity > kTiny && level_[static_cast<size_t>(edge.to)] < 0) {
          level_[static_cast<size_t>(edge.to)] = level_[static_cast<size_t>(node)] + 1;
          pending.push(edge.to);
        }
      }
    }
    return level_[static_cast<size_t>(sink)] >= 0;
  }

  double push(int node, int sink, double flow) {
    if (node == sink) return flow;
    size_t& i = next_[static_cast<size_t>(node)];
    for (; i < heads_[static_cast<size_t>(node)].size(); ++i) {
      const int e = heads_[static_cast<size_t>(node)][i];
      Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity <= kTiny ||
          level_[static_cast<size_t>(edge.to)] != level_[static_cast<size_t>(node)] + 1) {
        continue;
      }
      const double pushed = push(edge.to, sink, std::min(flow, edge.capacity));
      if (pushed <= 0) continue;
      edge.capacity -= pushed;
      edges_[static_cast<size_t>(e ^ 1)].capacity += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<std::vector<int>> heads_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<int> minimum_cut(const CutProblem& p) {
  const int source = 2 * p.vertices;
  const int sink = source + 1;
  Network network(sink + 1);
  for (int v = 0; v < p.vertices; ++v)
    network.connect(2 * v, 2 * v + 1, p.capacity[static_cast<size_t>(v)]);
  for (auto [from, to] : p.edges) network.connect(2 * from + 1, 2 * to, kNever);
  for (int v : p.sources) network.connect(source, 2 * v, kNever);
  for (int v : p.needs) network.connect(2 * v + 1, sink, kNever);
  network.saturate(source, sink);
  const std::vector<bool> near_needs = network.reaching(sink);
  std::vector<int> cut;
  for (int v = 0; v < p.vertices; ++v) {
    if (near_needs[static_cast<size_t>(2 * v + 1)] && !near_needs[static_cast<size_t>(2 * v)])
      cut.push_back(v);
  }
  return cut;
}

}  // namespace coda
