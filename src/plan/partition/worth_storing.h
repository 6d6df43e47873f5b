// SPDX-License-Identifier: Apache-2.0
// Finds values that are better stored than recomputed. The minimum cuts count only stored bytes:
// recomputing from memory is free for them, however many tensors it reads. For example, each layer
// would recompute a residual stream that no GEMM's tile holds (norms after the branches) from all
// earlier branches. This finds values that several programs would recompute by loading more bytes
// than storing them takes.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "plan/partition/partition.h"

namespace coda {

// The programs of one phase, as far as they are known before placement.
struct PhaseWork {
  const Graph* graph = nullptr;
  int units = 0;  // slots from here on are programs that may be placed anywhere
  std::map<PlanPoint, std::vector<int>> programs;  // what each of them stores or reduces
  // Whether the program at `at` computes a value itself: one of its own tiles.
  std::function<bool(int id, PlanPoint at)> is_own;
  std::function<bool(int id)> in_memory;  // for programs for which is_own is false
  // Whether the phase stores the value itself, so that one of its programs computes it anyway.
  std::function<bool(int id)> is_of_phase;
  std::function<double(int id)> bytes;       // of loading a value
  std::function<double(int id)> store_cost;  // extra bytes to store it; 0: it is stored anyway
};

// In ascending order of ids. A value that was found counts as stored for later ones.
std::vector<int> worth_storing(const PhaseWork& phase);

// By node: the first program that computes it; {} if there is none.
std::vector<PlanPoint> first_makers(const PhaseWork& phase);

}  // namespace coda
