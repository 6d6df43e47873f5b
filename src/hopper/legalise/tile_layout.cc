// SPDX-License-Identifier: Apache-2.0
// Values with one column a group learn how they lie from those whose columns they sum or repeat.
#include "hopper/legalise/tile_layout.h"

#include <string>

#include "coda/error.h"
#include "program/problem.h"

namespace coda::hopper {
namespace {

class LayoutFinder {
 public:
  LayoutFinder(const Program& program, const program::TileMap& map, const TileSpace& space,
               const DimValues& sizes)
      : program_(program), map_(map), space_(space), sizes_(sizes) {}

  std::map<int, TileLayout> run() {
    for (int i : space_.steps) {
      if (!map_.on_tile[i] || map_.grouped[i]) continue;
      known_[i] = map_.pairing[i] == Dim(0)
                      ? TileLayout{}
                      : TileLayout{.kind = TileLayout::wide, .pairing = map_.pairing[i]};
    }
    while (learn_once()) {
    }
    for (int i : space_.steps) {
      invariant(!map_.on_tile[i] || known_.contains(i), "a value of a tile space has no layout");
    }
    return std::move(known_);
  }

 private:
  std::string describe(int i) const {
    return "program '" + program_.name + "', step " + std::to_string(i) + ", " +
           program::describe_step(program_, i) + ":";
  }

  bool learn_once() {
    bool changed = false;
    for (int i : space_.steps) {
      const Step& s = program_.steps[i];
      if (s.kind == StepKind::reduce_group) {
        changed |= learn(i, group_layout(i, known_.at(s.operands[0]), s.group));
      } else if (s.kind == StepKind::repeat_group) {
        changed |= learn(s.operands[0], group_layout(i, known_.at(i), s.group));
      } else if (map_.on_tile[i] && map_.grouped[i]) {
        for (int operand : s.operands) {
          if (!map_.on_tile[operand]) continue;
          if (known_.contains(operand)) changed |= learn(i, known_.at(operand));
          if (known_.contains(i)) changed |= learn(operand, known_.at(i));
        }
      }
    }
    return changed;
  }

  bool learn(int i, const TileLayout& layout) {
    const auto [found, is_new] = known_.try_emplace(i, layout);
    require(found->second == layout,
            describe(i) +
                " its columns stand for different groups of the tile; store it, and load it in "
                "another program");
    return is_new;
  }

  // Of what one column for each `group` columns of `from` is; `i` is the step that says so.
  TileLayout group_layout(int i, const TileLayout& from, const Dim& group) const {
    TileLayout result{
        .kind = TileLayout::grouped, .pairing = from.pairing, .group = group.evaluate(sizes_)};
    if (from.kind == TileLayout::wide) {
      const int64_t pairs = from.pairing.evaluate(sizes_);
      result.is_split = result.group % pairs != 0;
      require(!result.is_split || pairs / 2 % result.group == 0,
              describe(i) + " its groups of " + group.text() + " columns and the pairs within " +
                  from.pairing.text() +
                  " columns cut each other; store the value and group it in another program");
    }
    return result;
  }

  const Program& program_;
  const program::TileMap& map_;
  const TileSpace& space_;
  const DimValues& sizes_;
  std::map<int, TileLayout> known_;
};

}  // namespace

std::map<int, TileLayout> tile_layouts(const Program& program, const program::TileMap& map,
                                       const TileSpace& space, const DimValues& sizes) {
  return LayoutFinder(program, map, space, sizes).run();
}

}  // namespace coda::hopper
