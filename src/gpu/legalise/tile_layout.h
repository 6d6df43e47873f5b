// SPDX-License-Identifier: Apache-2.0
// How the values of a tile space without a GEMM are laid out in a thread's eight base columns.
// Invariant: a value with one column per group is stored as one of base width with repeated
// columns.
#pragma once

#include <cstdint>
#include <map>
#include <variant>

#include "gpu/legalise/refusal.h"
#include "program/tile_map.h"

namespace coda::gpu {

struct TileLayout {
  enum Kind { narrow, wide, grouped } kind = narrow;
  Dim pairing = 0;        // wide, or grouped from a wide value
  int64_t group = 0;      // grouped: columns per group
  bool is_split = false;  // grouped: the members of a pair belong to different groups

  // Number of eight-column planes that a thread holds of each row.
  int planes() const { return kind == wide || is_split ? 2 : 1; }
  // Pairs are adjacent in memory: eight pairs are sixteen neighbouring elements.
  bool is_adjacent() const { return kind == wide && pairing == Dim(2); }
  // The columns of a plane are adjacent in memory.
  bool is_vector() const { return kind != grouped && !is_adjacent(); }
  // Base columns per group.
  int64_t base_group() const { return pairing == Dim(0) || is_split ? group : group / 2; }
  friend bool operator==(const TileLayout&, const TileLayout&) = default;
};

using TileLayouts = std::map<int, TileLayout>;  // of each tile-valued step of a space

std::variant<TileLayouts, Refusal> tile_layouts(const Program& program, const program::TileMap& map,
                                                const TileSpace& space, const DimValues& sizes);

// The same for a kernel without a GEMM, in which a warp must hold whole groups.
std::variant<TileLayouts, Refusal> layouts_of_warp(const Program& program,
                                                   const program::TileMap& map,
                                                   const TileSpace& space, const DimValues& sizes);

}  // namespace coda::gpu
