// SPDX-License-Identifier: Apache-2.0
// Dinic's algorithm on the split graph: vertex v becomes an edge from 2v to 2v + 1 with its
// capacity. Unused vertices (most of them, for a cut of one phase) are left out.
#include "plan/partition/min_cut.h"

#include <algorithm>
#include <queue>

namespace coda {
namespace {

class Network {
 public:
  explicit Network(int nodes) : first_(static_cast<size_t>(nodes), -1) {}

  void connect(int from, int to, double capacity) {
    add(from, to, capacity);
    add(to, from, 0);
  }

  void saturate(int source, int sink) {
    while (find_levels(source, sink)) {
      next_ = first_;
      while (push(source, sink, kNever) > 0) {
      }
    }
  }

  // The nodes from which the sink can still be reached.
  std::vector<bool> reaching(int sink) const {
    std::vector<bool> reached(first_.size(), false);
    std::queue<int> pending;
    reached[static_cast<size_t>(sink)] = true;
    pending.push(sink);
    while (!pending.empty()) {
      const int node = pending.front();
      pending.pop();
      for (int e = first_[static_cast<size_t>(node)]; e >= 0; e = edge(e).next) {
        const int from = edge(e).to;
        const bool open = edge(e ^ 1).capacity > kTiny;
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
    int next;  // edge of the same node, or -1
    double capacity;
  };
  static constexpr double kTiny = 1e-6;  // bytes

  void add(int from, int to, double capacity) {
    int& first = first_[static_cast<size_t>(from)];
    edges_.push_back({to, first, capacity});
    first = static_cast<int>(edges_.size()) - 1;
  }
  const Edge& edge(int e) const { return edges_[static_cast<size_t>(e)]; }

  bool find_levels(int source, int sink) {
    level_.assign(first_.size(), -1);
    level_[static_cast<size_t>(source)] = 0;
    std::queue<int> pending;
    pending.push(source);
    while (!pending.empty()) {
      const int node = pending.front();
      pending.pop();
      for (int e = first_[static_cast<size_t>(node)]; e >= 0; e = edge(e).next) {
        const int to = edge(e).to;
        if (edge(e).capacity > kTiny && level_[static_cast<size_t>(to)] < 0) {
          level_[static_cast<size_t>(to)] = level_[static_cast<size_t>(node)] + 1;
          pending.push(to);
        }
      }
    }
    return level_[static_cast<size_t>(sink)] >= 0;
  }

  double push(int node, int sink, double flow) {
    if (node == sink) return flow;
    for (int& e = next_[static_cast<size_t>(node)]; e >= 0; e = edge(e).next) {
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

  std::vector<int> first_;  // edge of a node, or -1
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<int> next_;  // edge of a node that is tried next
};

}  // namespace

std::vector<int> minimum_cut(const CutProblem& p) {
  std::vector<int> number(static_cast<size_t>(p.vertices), -1);  // among the named vertices
  std::vector<int> named;
  const auto enter = [&](int v) {
    int& n = number[static_cast<size_t>(v)];
    if (n < 0) {
      n = static_cast<int>(named.size());
      named.push_back(v);
    }
  };
  for (auto [from, to] : p.edges) enter(from), enter(to);
  for (int v : p.sources) enter(v);
  for (int v : p.needs) enter(v);

  const auto in = [&](int v) { return 2 * number[static_cast<size_t>(v)]; };
  const auto out = [&](int v) { return in(v) + 1; };
  const int source = 2 * static_cast<int>(named.size());
  const int sink = source + 1;
  Network network(sink + 1);
  for (int v : named) network.connect(in(v), out(v), p.capacity[static_cast<size_t>(v)]);
  for (auto [from, to] : p.edges) network.connect(out(from), in(to), kNever);
  for (int v : p.sources) network.connect(source, in(v), kNever);
  for (int v : p.needs) network.connect(out(v), sink, kNever);
  network.saturate(source, sink);
  const std::vector<bool> near_needs = network.reaching(sink);
  std::vector<int> cut;
  for (int v : named) {
    if (near_needs[static_cast<size_t>(out(v))] && !near_needs[static_cast<size_t>(in(v))])
      cut.push_back(v);
  }
  std::sort(cut.begin(), cut.end());
  return cut;
}

}  // namespace coda
