// SPDX-License-Identifier: Apache-2.0
// The minimum cuts count bytes that are stored: whatever can be made again from memory is free to
// them, however many tensors that reads. So a residual stream that no product's tile holds (norms
// behind the branches) would be made again from all branches before it, by every layer. Here are
// the values that are better stored once: several programs would make them again from what lies in
// memory, and that loads more bytes than it stores.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "plan/partition/partition.h"

namespace coda {

// The programs of one phase, as far as they are known before they are placed.
struct PhaseWork {
  const Graph* graph = nullptr;
  int units = 0;  // slots from here on are of programs that may stand anywhere
  std::map<PlanPoint, std::vector<int>> programs;  // what each of them stores or reduces
  // Whether the program at `at` makes a value itself wherever it needs it: one of its own tiles.
  std::function<bool(int id, PlanPoint at)> is_own;
  std::function<bool(int id)> in_memory;  // for programs whose own it is not
  // Whether the phase itself would store the value: one of its programs then makes it anyway.
  std::function<bool(int id)> is_of_phase;
  std::function<double(int id)> bytes;       // of a value that is loaded
  std::function<double(int id)> store_cost;  // bytes that storing it moves besides; 0: it is stored
};

// In ascending order of ids. What was found counts as stored for what is looked at later.
std::vector<int> worth_storing(const PhaseWork& phase);

// By node: the first program that makes it; {} where none does.
std::vector<PlanPoint> first_makers(const PhaseWork& phase);

}  // namespace coda
