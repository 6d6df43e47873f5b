// SPDX-License-Identifier: Apache-2.0
// A set of a graph's nodes that is emptied at no cost: for a walk that begins anew many times.
#pragma once

#include <cstddef>
#include <vector>

namespace coda {

class NodeSet {
 public:
  explicit NodeSet(int nodes) : round_of_(static_cast<size_t>(nodes), 0) {}

  void clear() { ++round_; }
  // Whether it is new.
  bool insert(int id) {
    size_t& round = round_of_[static_cast<size_t>(id)];
    const bool is_new = round != round_;
    round = round_;
    return is_new;
  }

 private:
  size_t round_ = 1;
  std::vector<size_t> round_of_;  // in which a node was last in the set
};

}  // namespace coda
