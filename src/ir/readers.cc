// SPDX-License-Identifier: Apache-2.0
#include "ir/readers.h"

namespace coda {

Readers::Readers(const Graph& graph, const std::vector<bool>& live)
    : first_(static_cast<size_t>(graph.size()) + 1, 0) {
  const auto each_edge = [&](const auto& visit) {
    for (int id = 0; id < graph.size(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      for (int operand : graph.node(id).operands) visit(static_cast<size_t>(operand), id);
    }
  };
  each_edge([&](size_t operand, int) { ++first_[operand + 1]; });
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  readers_.resize(first_.back());
  std::vector<size_t> next = first_;
  each_edge([&](size_t operand, int reader) { readers_[next[operand]++] = reader; });
}

}  // namespace coda
