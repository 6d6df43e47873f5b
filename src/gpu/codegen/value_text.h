// SPDX-License-Identifier: Apache-2.0
// Emits values on demand, for all emitters: a value is written as a line where it is first
// requested, and later requests return its name. A policy decides the rest: loads and other
// sources, names, and where lines are placed. There are policies for fragments of accumulators
// (space_text.cc), for rows and groups, for tiles without a GEMM (tile_emitter.cc) and for vectors
// (finalizer_emitter.cc).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/legalise/program_sizes.h"
#include "program/tile_map.h"

namespace coda::gpu {

class ValueText {
 public:
  // A plane of a step's value (wide values have two planes: the members of their pairs). A vector
  // of columns has the column layout of step `reader`.
  struct At {
    int step = -1;
    int reader = -1;
    int plane = 0;
  };
  struct Policy {
    // Distinguishes the texts of one step: the planes, columns or walks that need separate values.
    std::function<std::string(const At&)> place;
    // For values that are not computed from their operands alone: writes their lines and returns
    // the expression that reads them.
    std::function<std::optional<std::string>(const At&)> source;
    // Empty: the expression is used inline.
    std::function<std::string(const At&)> name;
    std::function<void(const At&, const std::string& name, const std::string& text)> write;
  };
  using Made = std::set<std::pair<int, std::string>>;  // step, place

  // `map` may be null if there are no tiles, `representative` if no two steps compute the same
  // value. All arguments must outlive this object.
  ValueText(const ProgramSizes& sizes, const program::TileMap* map,
            const std::vector<int>* representative, Policy policy)
      : sizes_(sizes), map_(map), representative_(representative), policy_(std::move(policy)) {}

  // A name, a literal or similar.
  std::string value(At at);
  // Operand k of the value at `at`.
  std::string operand(const At& at, size_t k);
  // Writes the steps in program order: the tile values in `needed`, and what `effect` writes for
  // each effect.
  void write(const std::vector<int>& steps, const Made& needed,
             const std::function<void(int)>& effect);
  // All values that were requested.
  Made made() const;

 private:
  std::string make(const At& at);
  int reader_of_operands(const At& at) const;

  const ProgramSizes& sizes_;
  const program::TileMap* map_;
  const std::vector<int>* representative_;
  const Policy policy_;
  std::map<std::pair<int, std::string>, std::string> texts_;
};

}  // namespace coda::gpu
