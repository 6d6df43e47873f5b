// SPDX-License-Identifier: Apache-2.0
// Whether a vector is known when a product's epilogue runs: the test that decides what is deferred
// (not "is it a norm").
#pragma once

#include <set>
#include <unordered_map>

#include "coda/graph.h"

namespace coda {

class Readiness {
 public:
  explicit Readiness(const Graph& graph) : graph_(graph) {}

  // True unless v contains a row reduction and depends on every product (matmul or opaque call)
  // inside x.
  bool is_ready(int v, int x);

 private:
  const std::set<int>& products(int id);
  bool has_row_reduction(int id);

  const Graph& graph_;
  std::unordered_map<int, std::set<int>> products_;
};

}  // namespace coda
