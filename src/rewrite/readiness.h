// SPDX-License-Identifier: Apache-2.0
// Whether a vector is known when a product's epilogue runs: the test that decides what is sunk
// (not "is it a norm").
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "coda/graph.h"

namespace coda {

class Readiness {
 public:
  explicit Readiness(const Graph& graph) : graph_(graph) {}

  // True unless v contains a row reduction and depends on every product (matmul or opaque call)
  // inside x.
  bool is_ready(int v, int x);

 private:
  // A set of products, by the order in which they were met: bit i % 64 of word i / 64.
  using Products = std::vector<uint64_t>;

  const Products& products(int id);
  bool has_row_reduction(int id);

  const Graph& graph_;
  size_t met_ = 0;
  std::unordered_map<int, Products> products_;  // at or below a node
  std::unordered_map<int, bool> has_row_reduction_;
};

}  // namespace coda
