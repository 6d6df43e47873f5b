// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/point_set.h"

#include <algorithm>

namespace coda::tokenizer {

PointSet PointSet::range(uint32_t first, uint32_t last) {
  if (last + 1 == kCodePoints) return PointSet({first});
  return PointSet({first, last + 1});
}

bool PointSet::contains(uint32_t point) const {
  return (std::ranges::upper_bound(edges_, point) - edges_.begin()) % 2 == 1;
}

PointSet PointSet::complement() const {
  std::vector<uint32_t> edges = edges_;
  if (!edges.empty() && edges.front() == 0) {
    edges.erase(edges.begin());
  } else {
    edges.insert(edges.begin(), 0);
  }
  return PointSet(std::move(edges));
}

PointSet PointSet::operator|(const PointSet& other) const {
  std::vector<uint32_t> edges;
  bool is_in = false;
  for (size_t i = 0, j = 0; i < edges_.size() || j < other.edges_.size();) {
    const uint32_t a = i < edges_.size() ? edges_[i] : kCodePoints;
    const uint32_t b = j < other.edges_.size() ? other.edges_[j] : kCodePoints;
    i += a <= b;
    j += b <= a;
    const bool now = i % 2 == 1 || j % 2 == 1;
    if (now != is_in) edges.push_back(std::min(a, b));
    is_in = now;
  }
  return PointSet(std::move(edges));
}

PointSet PointSet::operator&(const PointSet& other) const {
  return (complement() | other.complement()).complement();
}

}  // namespace coda::tokenizer
