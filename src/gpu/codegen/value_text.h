// SPDX-License-Identifier: Apache-2.0
// The one emitter of values: from a step to what it is made of. A value is written as a line where
// it is first asked for, and has a name from then on. What arithmetic does not make, how a value is
// called and where its line stands is the policy of whoever emits: fragments of accumulators
// (space_text.cc), rows and groups beside them, tiles without a product (tile_emitter.cc),
// vectors (finalizer_emitter.cc).
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
  // A plane of a step's value (wide values have two: the members of their pairs). A vector of
  // columns lies as the value of step `reader` does.
  struct At {
    int step = -1;
    int reader = -1;
    int plane = 0;
  };
  struct Policy {
    // What is a value of its own: the planes, columns or walks that tell apart the texts of a step.
    std::function<std::string(const At&)> place;
    // Of what is not made of its operands alone: writes its lines and returns how it is read.
    std::function<std::optional<std::string>(const At&)> source;
    // Empty: it stands where it is read.
    std::function<std::string(const At&)> name;
    std::function<void(const At&, const std::string& name, const std::string& text)> write;
  };
  using Made = std::set<std::pair<int, std::string>>;  // step, place

  // `map` may be missing where there are no tiles, `representative` where no two steps make one
  // value. What is given outlives it.
  ValueText(const ProgramSizes& sizes, const program::TileMap* map,
            const std::vector<int>* representative, Policy policy)
      : sizes_(sizes), map_(map), representative_(representative), policy_(std::move(policy)) {}

  // A name or a literal, or the like.
  std::string value(At at);
  // Operand k of the value at `at`.
  std::string operand(const At& at, size_t k);
  // In the order of the program: of tiles what is `needed`, and what `effect` writes of a step.
  void write(const std::vector<int>& steps, const Made& needed,
             const std::function<void(int)>& effect);
  // All that were asked for.
  Made made() const;

 private:
  std::string make(const At& at);

  const ProgramSizes& sizes_;
  const program::TileMap* map_;
  const std::vector<int>* representative_;
  const Policy policy_;
  std::map<std::pair<int, std::string>, std::string> texts_;
};

}  // namespace coda::gpu
