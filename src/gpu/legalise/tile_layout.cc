// SPDX-License-Identifier: Apache-2.0
// Values with one column per group get their layout from the values whose columns they sum or
// repeat.
#include "gpu/legalise/tile_layout.h"

#include <optional>

#include "coda/error.h"
#include "device/tiles/tile_position.cuh"
#include "gpu/legalise/plain_spaces.h"
#include "program/step_table.h"

namespace coda::gpu {
namespace {

class LayoutFinder {
 public:
  LayoutFinder(const Program& program, const program::TileMap& map, const TileSpace& space,
               const DimValues& sizes)
      : program_(program), map_(map), space_(space), sizes_(sizes) {}

  std::variant<TileLayouts, Refusal> run() {
    for (int i : space_.steps) {
      if (!map_.on_tile[i] || map_.grouped[i]) continue;
      known_[i] = map_.pairing[i] == Dim(0)
                      ? TileLayout{}
                      : TileLayout{.kind = TileLayout::wide, .pairing = map_.pairing[i]};
    }
    while (!refusal_ && learn_once()) {
    }
    if (refusal_) return *refusal_;
    for (int i : space_.steps) {
      invariant(!map_.on_tile[i] || known_.contains(i), "a value of a tile space has no layout");
    }
    return std::move(known_);
  }

 private:
  bool learn_once() {
    bool changed = false;
    for (int i : space_.steps) {
      const Step& s = program_.steps[i];
      if (program::sums_groups(s)) {
        changed |= learn(i, group_layout(i, known_.at(s.operands[0]), s.group()));
      } else if (program::repeats_groups(s)) {
        changed |= learn(s.operands[0], group_layout(i, known_.at(i), s.group()));
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
    if (found->second != layout) refuse({.reason = RefusalReason::two_groups, .step = i});
    return is_new;
  }

  // The layout of a value with one column per `group` columns of `from`; step `i` defines the
  // groups.
  TileLayout group_layout(int i, const TileLayout& from, const Dim& group) {
    TileLayout result{
        .kind = TileLayout::grouped, .pairing = from.pairing, .group = group.evaluate(sizes_)};
    if (from.kind == TileLayout::wide) {
      const int64_t pairs = from.pairing.evaluate(sizes_);
      result.is_split = result.group % pairs != 0;
      if (result.is_split && pairs / 2 % result.group != 0)
        refuse({.reason = RefusalReason::groups_cut_pairs, .step = i, .value = pairs});
    }
    return result;
  }

  // Keeps only the first refusal.
  void refuse(const Refusal& refusal) {
    if (!refusal_) refusal_ = refusal;
  }

  const Program& program_;
  const program::TileMap& map_;
  const TileSpace& space_;
  const DimValues& sizes_;
  TileLayouts known_;
  std::optional<Refusal> refusal_;
};

}  // namespace

std::variant<TileLayouts, Refusal> tile_layouts(const Program& program, const program::TileMap& map,
                                                const TileSpace& space, const DimValues& sizes) {
  return LayoutFinder(program, map, space, sizes).run();
}

std::variant<TileLayouts, Refusal> layouts_of_warp(const Program& program,
                                                   const program::TileMap& map,
                                                   const TileSpace& space, const DimValues& sizes) {
  auto found = tile_layouts(program, map, space, sizes);
  const auto* layouts = std::get_if<TileLayouts>(&found);
  if (layouts == nullptr) return found;
  for (int i : space.steps) {
    if (!program::sums_groups(program.steps[i])) continue;
    const int64_t base = layouts->at(i).base_group();
    if (!is_group_of_warp(base)) {
      return Refusal{.reason = RefusalReason::group_in_warp,
                     .step = i,
                     .value = base,
                     .budget = device::kBlockColumns};
    }
  }
  return found;
}

}  // namespace coda::gpu
