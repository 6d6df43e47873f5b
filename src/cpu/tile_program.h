// SPDX-License-Identifier: Apache-2.0
// A lowered tile space: GEMMs into accumulators, then operations over row strips of a tile, each on
// one plane. A value of base width is one plane. A value of twice that width is two planes, the
// first and second members of its pairs, wherever their columns are in memory; so split_pair and
// merge_pairs are free. A value with one column per group is a narrow plane.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "coda/program.h"
#include "cpu/vector_ops.h"

namespace coda::cpu {

// The columns in memory of a plane's columns. Column j of plane w is column ((j / half) * 2 half +
// w * half + j % half) % stored; with one plane (half = 0) it is j % stored.
struct ColumnMap {
  int64_t half = 0;    // columns between the members of a pair; 0: one plane
  int64_t stored = 0;  // columns in memory

  int64_t at(int64_t j, int plane) const {
    if (half > 0) j = j / half * 2 * half + plane * half + j % half;
    return j % stored;
  }
  // Whether both planes alternate in memory, so that they are moved together.
  bool is_interleaved() const { return half == 1 && stored % 2 == 0; }
  // Number of columns from j on (at most `limit`) that are adjacent in memory.
  int64_t run(int64_t j, int plane, int64_t limit) const {
    int64_t n = limit;
    if (half > 0 && half - j % half < n) n = half - j % half;
    const int64_t left = stored - at(j, plane);
    return left < n ? left : n;
  }
  friend bool operator==(const ColumnMap&, const ColumnMap&) = default;
};

enum class PlaceKind : uint8_t {
  none,
  strip,
  accumulator,
  row_vector,
  column_vector,
  scalar,
};

// The location of an operand: a plane of the strip or of the accumulators, or a vector (by its
// number in VectorProgram).
struct Place {
  PlaceKind kind = PlaceKind::none;
  int index = -1;

  bool is_constant_along_columns() const {
    return kind == PlaceKind::row_vector || kind == PlaceKind::scalar;
  }
  friend bool operator==(const Place&, const Place&) = default;
};

enum class TileOpKind : uint8_t {
  elementwise,
  sum,
  round,
  load,        // one plane
  load_pairs,  // two interleaved planes
  store,
  store_pairs,
  store_transposed,  // one plane
  abs_max_into,      // one plane
  reduce_group,
  repeat_group,
  row_partial,
  column_partial,
  select_column,
};

struct TileOp {
  TileOpKind kind = TileOpKind::elementwise;
  Elementwise op = Elementwise::add;
  Arithmetic arithmetic = Arithmetic::add;
  PartialKind partial = PartialKind::sum;  // of reduce_group: sum or abs_max
  DType dtype = DType::f32;                // round; load, store: of the tensor
  std::array<Place, 3> in = {};
  std::array<Place, 2> out = {};  // strip planes
  int plane = 0;  // load, stores, column_partial, repeat_group: which member of its pairs
  // Whether all its planes have one column per group; false for reductions and operations that
  // change the width.
  bool is_narrow = false;
  // Base columns per column of a narrow plane; 0: a tile has all columns of a row.
  int64_t span = 1;
  int64_t groups = 0;     // narrow columns of a whole row
  int tensor = -1;        // in memory; select_column: where the result goes
  int index_tensor = -1;  // load: rows; select_column: columns
  ColumnMap map;          // of `tensor`'s columns, or of the operand's
  int64_t group = 0;      // reduce_group, repeat_group: columns of a group, of the whole value
  int state = -1;         // column_partial: number of its state in scratch memory
};

// One plane of a GEMM's accumulator.
struct PlaneGemm {
  struct Segment {
    int a = -1;  // in TileProgram::a
    int b = -1;  // in TileProgram::b
  };
  std::vector<Segment> segments;
  int accumulator = -1;
};

// Operands to pack; an operand of several GEMMs is packed once.
struct AOperand {
  int tensor = -1;
  bool transposed = false;
  DType packed = DType::f32;
  int64_t k = 0;
  int scales = -1;  // a tensor; none: all 1
  friend bool operator==(const AOperand&, const AOperand&) = default;
};
struct BOperand {
  int tensor = -1;
  bool transposed = false;
  DType packed = DType::f32;
  int64_t k = 0;
  ColumnMap map;
  int plane = 0;
  int scales = -1;
  friend bool operator==(const BOperand&, const BOperand&) = default;
};

struct TileProgram {
  int64_t rows = 0;
  int64_t cols = 0;         // base columns
  int64_t column_step = 1;  // tiles have a multiple of this, or all columns
  bool needs_all_columns = false;
  // Columns that a strip plane must hold besides the tile's own (narrow planes of whole rows).
  int64_t widest_plane = 0;
  std::vector<AOperand> a;
  std::vector<BOperand> b;
  std::vector<PlaneGemm> gemms;
  int accumulators = 0;
  std::vector<TileOp> ops;  // each strip plane is written once, until share_strip_planes
  int states = 0;           // of column partials
};

// Gives values that are not live at the same time the same strip plane. Returns the number of
// planes.
int share_strip_planes(TileProgram& program);

}  // namespace coda::cpu
