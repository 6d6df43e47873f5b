// SPDX-License-Identifier: Apache-2.0
// The edges of a graph the other way round: who reads a node. A picture of the graph as it is when
// it is taken; nodes that are added later are not in it.
#pragma once

#include <span>
#include <vector>

#include "coda/graph.h"

namespace coda {

class Readers {
 public:
  // Only readers that are `live` (by node) count.
  Readers(const Graph& graph, const std::vector<bool>& live);

  // Ascending; a node that has `id` as two operands is listed twice.
  std::span<const int> of(int id) const {
    const auto i = static_cast<size_t>(id);
    return {readers_.data() + first_[i], first_[i + 1] - first_[i]};
  }

 private:
  std::vector<size_t> first_;  // of a node's readers; one more at the end
  std::vector<int> readers_;   // of node 0, of node 1, ...
};

}  // namespace coda
