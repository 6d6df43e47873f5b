// SPDX-License-Identifier: Apache-2.0
// How the values of a tile space without a product lie in a thread's eight base columns.
// Invariant: a value with one column a group is kept as one of the base width whose columns repeat.
#pragma once

#include <cstdint>
#include <map>
#include <variant>

#include "gpu/legalise/refusal.h"
#include "program/tile_map.h"

namespace coda::gpu {

struct TileLayout {
  enum Kind { narrow, wide, grouped } kind = narrow;
  Dim pairing = 0;        // wide, and grouped from wide
  int64_t group = 0;      // grouped: natural columns of a group
  bool is_split = false;  // grouped: the members of a pair lie in different groups

  // Values of eight columns that a thread holds of each row.
  int planes() const { return kind == wide || is_split ? 2 : 1; }
  // The members of a pair are neighbours in memory: eight pairs are sixteen of them.
  bool is_adjacent() const { return kind == wide && pairing == Dim(2); }
  // The columns of a plane are neighbours in memory.
  bool is_vector() const { return kind != grouped && !is_adjacent(); }
  // Base columns of a group.
  int64_t base_group() const { return pairing == Dim(0) || is_split ? group : group / 2; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
};

using TileLayouts = std::map<int, TileLayout>;  // of each step of a space that is a tile

std::variant<TileLayouts, Refusal> tile_layouts(const Program& program, const program::TileMap& map,
                                                const TileSpace& space, const DimValues& sizes);

// The same for a kernel without a product, a warp of which must hold the groups that it sums.
std::variant<TileLayouts, Refusal> layouts_of_warp(const Program& program,
                                                   const program::TileMap& map,
                                                   const TileSpace& space, const DimValues& sizes);

}  // namespace coda::gpu
