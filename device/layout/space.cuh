// SPDX-License-Identifier: Apache-2.0
// What a kernel knows of one tile space of its program, and where in a tile its values lie. This is
// the contract between the device code and whoever writes a kernel, by hand or by emission.
// Everything here is constexpr and also compiled for the host, where it is tested exhaustively.
// Invariant: a tile has tile_n accumulator columns: `parts` for each of its base columns.
//
// A tile space has rows and base columns. A value in it is narrow (one plane of base columns) or
// wide (two: the members of its pairs). Member w of base column j is natural column
// (j / half) * 2 * half + w * half + j % half of the tensor.
//
// A kernel is `program_kernel<kConfig, Space0, Space1, ...>(arguments, tile_counter)`, where
// `arguments` is one `const __grid_constant__` struct, and each space a struct of static members:
//
//   struct Space0 {
//     static constexpr EpilogueTraits kTraits{.parts = 2, .loads = 2, .stores = 3};
//
//     // Extents: rows and base columns.
//     static u32 rows(const Arguments&);
//     static u32 columns(const Arguments&);
//     // Tiles, in cluster tiles of tile_m rows and base_columns(kConfig, kTraits) base columns.
//     static TileOrder order(const Arguments&);
//
//     // Operands of K segment `segment`: boxes are box_a(kConfig) and box_b(kConfig, kTraits).
//     // B has one descriptor a loaded part (one in natural order). The contraction in blocks of
//     // kConfig.block_k().
//     static const TensorMap* a(const Arguments&, u32 segment);
//     static const TensorMap* b(const Arguments&, u32 segment, u32 part);
//     static u32 k_blocks(const Arguments&, u32 segment);
//     // Where kConfig.has_scales: the scale of a row of A, and of a column of a part's B (natural,
//     // in natural order), for K block k of all segments.
//     static float scale_of_row(const Arguments&, u32 k, u32 row);
//     static float scale_of_column(const Arguments&, u32 k, u32 part, u32 column);
//
//     // One thread of a producer warp: one plane of 64 x sub_tile_width(kConfig, kTraits) 16-bit
//     // elements, or 64 x 64 bytes, by tma_load_once and tma_store_once. `row` and `column` are
//     the sub-tile's first
//     // row and base column (a wide tensor's box then starts at plane_column). Not needed where
//     // there are no planes.
//     static void load(const Arguments&, u32 plane, SharedAddress destination, u32 row,
//                      u32 column, SharedAddress barrier);
//     static void store(const Arguments&, u32 plane, u32 row, u32 column, SharedAddress source);
//     static void store_bytes(const Arguments&, u32 byte_half, u32 row, u32 column,
//                             SharedAddress source);
//
//     // All 128 threads of a consumer warpgroup, inlined, every index into registers compile-time.
//     struct Rows {};     // per-row values of a thread for one tile
//     struct SubTile {};  // what a thread carries through one sub-tile: running reductions (given
//                         // their start by member initialisers), per-column values
//     // Under the mainloop, before the accumulators are waited for. The position is that of the
//     // first sub-tile's first fragment; the thread also has its row + 64 * block + {0, 8} for
//     every
//     // block < kConfig.blocks_m().
//     static void begin_tile(const Arguments&, Rows&, const FragmentPosition&);
//     // Later, if kTraits.keeps_tables: tables that all sub-tiles of the same rows read, for
//     fragment
//     // kFragment of each; in order, with a K block between one and the next.
//     template <u32 kFragment>
//     static void load_tables(const Arguments&, Rows&, const FragmentPosition&);
//     // Before the sub-tile's planes are waited for; the position is its first fragment's.
//     template <u32 kBlock>
//     static void begin_sub_tile(const Arguments&, const Rows&, SubTile&, const FragmentPosition&);
//     // 16 base columns: eight elements a thread in each narrow value. Element i of `acc[part]` is
//     // at row + (i / 2 % 2) * 8, column + (i / 4) * 8 + i % 2 of the position; register q of a
//     // plane packs elements 2q (low) and 2q + 1 (unpack_fragment, pack_fragment). Behind the
//     // planes, `stored` has the byte planes (put_bytes); the last of `loaded` are byte planes
//     // (pair_of_bytes).
//     template <u32 kBlock, u32 kFragment>
//     static void fragment(const Arguments&, const Rows&, SubTile&,
//                       const float (&acc)[kTraits.parts][8],
//                       const u32 (&loaded)[larger(1, kTraits.loads)][4],
//                       u32 (&stored)[larger(1, kTraits.stores + kTraits.bytes)][4],
//                       const FragmentPosition&);
//     // Where kTraits.group_span is not 0: what there is one of for each group of columns
//     // (device/epilogue/group_values.cuh), for as many base columns at a time. The position is
//     their first
//     // fragment's. begin_groups, then for each walk walk_groups over all fragments, and end_walk;
//     then
//     // the span's sub-tiles, each with `groups` in its SubTile, and next_sub_tile between them.
//     // begin_sub_tile then comes behind the walks.
//     struct Groups {};
//     template <u32 kBlock>
//     static void begin_groups(const Arguments&, const Rows&, Groups&, const FragmentPosition&);
//     template <u32 kWalk, u32 kBlock, u32 kFragment>
//     static void walk_groups(const Arguments&, const Rows&, Groups&,
//                             const float (&acc)[kTraits.parts][8],
//                             const u32 (&loaded)[larger(1, kTraits.loads)][4], const
//                             FragmentPosition&);
//     template <u32 kWalk, u32 kBlock>
//     static void end_walk(const Arguments&, const Rows&, Groups&, const FragmentPosition&);
//     static void next_sub_tile(Groups&);
//     // After the sub-tile's last fragment; the position is its first fragment's. `scratch` is
//     this
//     // warpgroup's shared memory for column partials (device/epilogue/column_partial.cuh).
//     template <u32 kBlock>
//     static void end_sub_tile(const Arguments&, const Rows&, SubTile&, const FragmentPosition&,
//                              SharedAddress scratch);
//   };
//
// Spaces are walked one after another, all with the same configuration. Every function is called by
// all threads of a warpgroup together, also for tiles that lie partly or wholly outside the space:
// planes are clipped by TMA, everything else asks the position. Outside the space accumulators and
// loaded planes are zero.
#pragma once

#include "device/layout/wgmma_descriptor.cuh"

namespace coda::device {

// An epilogue handles a sub-tile of 64 rows by 64 base columns of one warpgroup as four fragments
// of 16 columns. In a fragment a thread holds eight elements of each narrow value. If a tile's base
// columns are not a multiple of 64, all its sub-tiles have 32 columns, two fragments.
inline constexpr u32 kSubTileColumns = kSwizzleBytes / kElementBytes;
inline constexpr u32 kHalfSubTileColumns = kSubTileColumns / 2;
inline constexpr u32 kSubTileBytes = kWgmmaM * kSwizzleBytes;
inline constexpr u32 kBytePlaneHalf = kWgmmaM * kSubTileColumns;  // bytes
inline constexpr u32 kFragmentColumns = 16;
inline constexpr u32 kFragments = kSubTileColumns / kFragmentColumns;
inline constexpr u32 kFragmentElements = 8;

struct EpilogueTraits {
  // Accumulators per base column. Part p of a tile of W base columns has accumulator columns [p *
  // W, (p + 1) * W), and its part of B has its own descriptor. In natural order, the two parts are
  // members of pairs, B is loaded in one piece of tile_n natural columns, and the accumulators are
  // in natural order too.
  u32 parts = 1;
  u32 natural_half = 0;  // 0: not in natural order; else half, and parts == 2
  u32 segments = 1;      // of K
  // 16-bit planes that pass through the staging ring: one for a narrow tensor, two consecutive ones
  // for a wide tensor. A store reuses the shared memory of the load with the same number.
  u32 loads = 0;
  // The last of the loads are byte planes, 64 rows of 64 bytes: two share the space of a plane,
  // which no store reuses.
  u32 byte_loads = 0;
  u32 stores = 1;
  // In natural order with half < 64, the two planes of a wide tensor are 128 natural columns, and
  // plane_place says where a member's fragment is. Bit p: planes p and p + 1 are such a tensor.
  // Planes that share memory must agree.
  u32 wide_loads = 0;
  u32 wide_stores = 0;
  // Values stored in 8 bits, after the 16-bit stores: a plane along rows, then one along columns,
  // both 64 bytes wide. Bit b of a field: value b has that plane. Each takes half a plane. They
  // share no memory with loads, because a warp's columns are next to those of other warps.
  u32 bytes = 0;
  u32 byte_rows = 0;
  u32 byte_columns = 0;
  u32 column_partials = 0;    // each uses 64 floats of scratch per warp
  bool keeps_tables = false;  // Space::load_tables is called
  u32 group_span = 0;   // base columns that hold whole groups and are walked together; 0: no groups
  u32 group_walks = 0;  // one more for sums that depend on other sums
  u32 group_loads = 0;  // bit p: a walk reads plane p; only if the span is one sub-tile

  constexpr u32 word_loads() const { return loads - byte_loads; }
  // The offset of a load in a group of planes of this many bytes.
  constexpr u32 load_offset(u32 load, u32 plane_bytes) const {
    if (load < word_loads()) return load * plane_bytes;
    return word_loads() * plane_bytes + (load - word_loads()) * kBytePlaneHalf;
  }
  // Planes that loads fill.
  constexpr u32 load_planes() const { return word_loads() + (byte_loads + 1) / 2; }
  // Stores without a 16-bit load to reuse are placed after the byte loads.
  constexpr u32 store_plane(u32 store) const {
    return store < word_loads() ? store : store + load_planes() - word_loads();
  }
  constexpr u32 first_byte_plane() const { return store_plane(larger(word_loads(), stores)); }
  // The number of half planes before value `byte`, from the first byte plane on, or of all of them.
  constexpr u32 byte_half(u32 byte, bool along_columns) const {
    u32 half = 0;
    for (u32 b = 0; b <= byte; ++b) {
      half += (b < byte || along_columns) ? byte_rows >> b & 1 : 0;
      half += b < byte ? byte_columns >> b & 1 : 0;
    }
    return half;
  }
  constexpr u32 byte_halves() const { return byte_half(bytes, false); }
  constexpr u32 planes() const { return first_byte_plane() + (byte_halves() + 1) / 2; }
  // Planes of a fragment in a thread's registers.
  constexpr u32 moved() const { return larger(loads, stores) + bytes; }
  constexpr bool staged() const { return planes() != 0; }
  // Number of pieces in which a B tile is loaded.
  constexpr u32 loaded_parts() const { return natural_half != 0 ? 1 : parts; }
};

// Base columns of a tile.
constexpr u32 base_columns(const GemmConfig& config, const EpilogueTraits& shape) {
  return config.tile_n / shape.parts;
}

// Columns of a sub-tile.
constexpr u32 sub_tile_width(const GemmConfig& config, const EpilogueTraits& shape) {
  return base_columns(config, shape) % kSubTileColumns == 0 ? kSubTileColumns : kHalfSubTileColumns;
}
constexpr u32 plane_bytes(const GemmConfig& config, const EpilogueTraits& shape) {
  return kWgmmaM * sub_tile_width(config, shape) * kElementBytes;
}

// Whether the pairs of a tile's first fragments take turns. Registers are scarcest there, before
// epilogues have consumed accumulators; without turns the assembler works on all pairs at once and
// spills (after_turn in device/epilogue/fragment_values.cuh).
constexpr bool takes_turns(const GemmConfig& config, const EpilogueTraits& shape) {
  return config.accumulators() > 128 && shape.loads != 0 && shape.moved() > 2;
}

// One TMA box of B: the CTAs of a cluster that share a loaded part each load a slice of it.
constexpr OperandBox box_b(const GemmConfig& config, const EpilogueTraits& shape) {
  return operand_box(config.major_b(), config.tile_n / shape.loaded_parts(), config.cluster_m,
                     config.block_k());
}

// How boxes fill a stage. An operand tile (or part) that is contiguous along K is one box; one that
// is contiguous along its outer dimension is one box for each 64 outer indices.
struct BoxPlace {
  u32 offset = 0;  // bytes into the stage
  u32 outer = 0;   // from the tile's first outer index
  u32 k = 0;       // from the block's first k
};

constexpr u32 box_count(Major major, u32 tile_outer) {
  return major == Major::k ? 1 : tile_outer / kOuterPanel;
}
constexpr BoxPlace box_place(Major major, u32 tile_outer, u32 slices, u32 slice, u32 index) {
  const OperandBox box = operand_box(major, tile_outer, slices);
  if (major == Major::k) {
    return {.offset = slice * box.outer * kSwizzleBytes, .outer = slice * box.outer};
  }
  return {.offset = index * kOuterPanelBytes + slice * box.k * kSwizzleBytes,
          .outer = index * box.outer,
          .k = slice * box.k};
}

// The first column (N index of op(B)) of a loaded part, for a tile at this base column.
constexpr u32 operand_column(const EpilogueTraits& shape, u32 base_column) {
  return shape.natural_half != 0 ? 2 * base_column : base_column;
}

constexpr bool is_valid(const GemmConfig& config, const EpilogueTraits& shape) {
  if (!is_valid(config) || shape.parts == 0 || shape.segments == 0) return false;
  const u32 base = base_columns(config, shape);
  if (config.tile_n % shape.parts != 0) return false;
  if (sub_tile_width(config, shape) != kSubTileColumns) {
    // For example 96 columns. Partials, vectors and tables of a sub-tile need 64 columns, so a
    // space with sub-tiles of 32 has none. (The caller checks row partials and vectors, which the
    // traits do not show.)
    if (base < kSubTileColumns || base % kHalfSubTileColumns != 0) return false;
    if (shape.natural_half != 0 || shape.column_partials != 0 || shape.keeps_tables) return false;
    if (shape.bytes + shape.byte_loads != 0) return false;
    if (shape.group_span != 0) return false;
  }
  if (shape.group_span != 0 && base % shape.group_span != 0) return false;
  if (shape.natural_half != 0) {
    if (shape.parts != 2 || shape.natural_half % kFragmentColumns != 0) return false;
    if (base % shape.natural_half != 0) return false;
    // A loaded pair of planes and a pair stored over it must have the same permutation.
    const u32 shared = smaller(shape.word_loads(), shape.stores);
    if (shape.natural_half < kSubTileColumns) {
      for (u32 plane = 0; plane < shared; ++plane) {
        if (((shape.wide_loads ^ shape.wide_stores) >> plane & 1) != 0) return false;
      }
      if (shape.word_loads() != shape.stores && shared != 0 &&
          ((shape.wide_loads | shape.wide_stores) >> (shared - 1) & 1) != 0) {
        return false;
      }
    }
  }
  // A part that is contiguous along N is loaded in whole boxes of 64 columns.
  if (config.major_b() == Major::outer && config.tile_n / shape.loaded_parts() % kOuterPanel != 0)
    return false;
  // A slice of a part starts at a multiple of the swizzle's period of eight rows.
  return config.tile_n / shape.loaded_parts() % (8 * config.cluster_m) == 0;
}

// The natural column of member `member` of a base column.
constexpr u32 wide_column(u32 half, u32 member, u32 base_column) {
  return base_column / half * 2 * half + member * half + base_column % half;
}

// The accumulator column in a tile of `part` at a base column that is a multiple of 16. The
// fragment's 16 columns are adjacent.
constexpr u32 accumulator_column(const GemmConfig& config, const EpilogueTraits& shape, u32 part,
                                 u32 base_column) {
  return shape.natural_half != 0 ? wide_column(shape.natural_half, part, base_column)
                                 : part * base_columns(config, shape) + base_column;
}

// The first natural column of the box for a wide tensor's plane `member` in the sub-tile at a base
// column: the member's 64 columns or, for half < 64, one of two boxes that hold both members.
constexpr u32 plane_column(u32 half, u32 member, u32 base_column) {
  return half < kSubTileColumns ? 2 * base_column + member * kSubTileColumns
                                : wide_column(half, member, base_column);
}

struct PlanePlace {
  u32 plane = 0;
  u32 fragment = 0;

  constexpr bool operator==(const PlanePlace&) const = default;
};

// The position of a plane's fragment in the ring. Only planes of a wide tensor in natural order
// with half < 64 are permuted: bit p of `wide` is set for the first plane of each wide tensor.
constexpr PlanePlace plane_place(u32 half, u32 wide, u32 plane, u32 fragment) {
  if (half == 0 || half >= kSubTileColumns) return {plane, fragment};
  const bool second = plane != 0 && (wide >> (plane - 1) & 1) != 0;
  if (!second && (wide >> plane & 1) == 0) return {plane, fragment};
  const u32 first = second ? plane - 1 : plane;
  const u32 natural = wide_column(half, second ? 1 : 0, fragment * kFragmentColumns);
  return {first + natural / kSubTileColumns, natural % kSubTileColumns / kFragmentColumns};
}

// A thread's position in the space during a fragment.
struct FragmentPosition {
  u32 row = 0;      // its first row; the second is row + 8
  u32 column = 0;   // its first base column; the others are + 1, + 8 and + 9
  u32 thread = 0;   // of the warpgroup
  u32 rows = 0;     // of the space
  u32 columns = 0;  // of the space: base columns

  // Sub-tiles start at multiples of 64 columns and rows, so these are the indices of partials.
  constexpr u32 partial_column() const { return column / kSubTileColumns; }
  constexpr u32 partial_row() const { return row / kWgmmaM; }
};

}  // namespace coda::device
