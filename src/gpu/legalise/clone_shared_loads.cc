// SPDX-License-Identifier: Apache-2.0
// Finds groups of steps that are connected by values other than loads, and gives each group with a
// GEMM its own copy of shared loads.
#include "gpu/legalise/clone_shared_loads.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "program/step_table.h"
#include "program/tile_map.h"

namespace coda::gpu {
namespace {

// Connected components of steps, ignoring steps that are only loaded.
class Components {
 public:
  Components(const Program& program, const program::TileMap& map)
      : program_(program), parent_(program.steps.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (size_t i = 0; i < parent_.size(); ++i) {
      for (int operand : program.steps[i].operands) {
        if (map.on_tile[operand] && !is_copied(operand)) join(static_cast<int>(i), operand);
      }
    }
    for (size_t i = 0; i < parent_.size(); ++i) {
      if (program::is_product(program.steps[i])) with_product_.insert(of(static_cast<int>(i)));
    }
    // A component without a GEMM stays with the components that load the same tensors; at most one
    // of those has a GEMM.
    std::map<int, std::set<int>> readers;
    for (size_t i = 0; i < parent_.size(); ++i) {
      for (int operand : program.steps[i].operands) {
        if (is_copied(operand)) readers[operand].insert(static_cast<int>(i));
      }
    }
    for (const bool products : {false, true}) {
      for (const auto& [load, steps] : readers) {
        for (int i : steps) {
          for (int j : steps) {
            if (has_product(of(i)) || (has_product(of(j)) && !products)) continue;
            if (has_product(of(j))) with_product_.insert(std::min(of(i), of(j)));
            join(i, j);
          }
        }
      }
    }
  }

  int of(int i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }

  // Whether a load may be duplicated. A tensor that the program also stores is read in place, so
  // its load must stay with the store.
  bool is_copied(int i) const {
    const Step& step = program_.steps[i];
    if (!program::is_tile_load(step)) return false;
    return std::none_of(program_.steps.begin(), program_.steps.end(), [&](const Step& other) {
      return !other.operands.empty() && other.tensor() == step.tensor();
    });
  }

 private:
  bool has_product(int component) const { return with_product_.contains(component); }
  void join(int i, int j) { parent_[std::max(of(i), of(j))] = std::min(of(i), of(j)); }

  const Program& program_;
  std::vector<int> parent_;
  std::set<int> with_product_;
};

}  // namespace

Program clone_shared_loads(const Program& program) {
  const program::TileMap map = program::map_tiles(program);
  const Components components(program, map);
  const int count = static_cast<int>(program.steps.size());
  std::vector<std::set<int>> readers(count);  // by load: components that read it
  for (int i = 0; i < count; ++i) {
    for (int operand : program.steps[i].operands) {
      if (components.is_copied(operand)) readers[operand].insert(components.of(i));
    }
  }
  Program result = program;
  result.steps.clear();
  std::map<std::pair<int, int>, int> place;  // step and reader's component -> new step
  for (int i = 0; i < count; ++i) {
    Step step = program.steps[i];
    if (components.is_copied(i)) {
      for (int reader : readers[i]) {
        place[{i, reader}] = static_cast<int>(result.steps.size());
        result.steps.push_back(step);
      }
      continue;
    }
    for (int& operand : step.operands) {
      const bool copied = components.is_copied(operand);
      operand = place.at({operand, copied ? components.of(i) : 0});
    }
    place[{i, 0}] = static_cast<int>(result.steps.size());
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace coda::gpu
