// SPDX-License-Identifier: Apache-2.0
// A Program: how tiles are computed. A source (GEMMs, or tiles loaded from memory) and a
// straight-line epilogue over one tile, in five kinds of primitive: elementwise, vector load and
// store, tile load and store, tile reduction, stateful. Finalizers, which combine partial
// reductions, and programs with no GEMM are Programs too.
//
// A Program is a list of steps in static single assignment: the value of step i is named by i. A
// backend may compute the steps of one *tile space* (see tile_spaces) for one tile at a time, in
// any tile order and shape, and gives the same bits.
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "coda/api.h"
#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/partial.h"

namespace CODA_API coda {

// Partials of a reduction have a fixed granularity, so that every tile shape gives the same bits.
inline constexpr int64_t kPartialSpan =
    64;  // base columns (row partials) or rows (column partials) a partial covers

// Spans in which so many columns or rows are reduced, the last one ragged.
constexpr int64_t partial_spans(int64_t size) { return (size + kPartialSpan - 1) / kPartialSpan; }

// How a tensor that a program names lies in memory.
enum class TensorKind : uint8_t {
  dense,        // [rows, cols] row-major; vectors and scalars are dense too
  row_partial,  // fp32 [lanes][rows][ceil(cols/64)], where cols are the base columns of the reduced
                // tile space
  column_partial,  // fp32 [lanes][ceil(rows/64)][cols]
};

struct TensorDecl {
  std::string name;
  Shape shape;  // of a partial: [rows, base columns] (row) or [rows, cols] (column) of what was
                // reduced
  DType dtype = DType::f32;
  TensorKind kind = TensorKind::dense;
  int lanes = 1;             // of a partial
  bool is_constant = false;  // it is read alone, and the backward has no gradient of it

  friend bool operator==(const TensorDecl&, const TensorDecl&) = default;
};

// Rows and columns of a declared tensor in memory, as one dense matrix: [rows, cols]; a row partial
// is [lanes * rows, ceil(cols / 64)], a column partial [lanes * ceil(rows / 64), cols].
struct PhysicalShape {
  int64_t rows = 0;
  int64_t cols = 0;
};
PhysicalShape physical_shape(const TensorDecl& decl, const DimValues& sizes);

// The elements that share a scale of an 8-bit operand: so many along the contraction, and of blocks
// as many rows.
inline constexpr int64_t kScaleSpan = 128;

// One K segment of a GEMM: op(A)[M, K] · op(B)[K, N]. Tensor indices into Program::tensors.
// An 8-bit operand that is stored with K along its rows may have scales, fp32, of shape
// [rows, K / 128], or [rows / 128, K / 128] for blocks of 128 x 128; an element is its code times
// its scale. The products of each 128 of K are summed by themselves, and the sum is multiplied by
// both scales where it joins the others.
struct GemmSegment {
  int a = -1;
  int b = -1;
  bool transpose_a = false;  // A is stored [K, M]
  bool transpose_b = false;  // B is stored [N, K], as torch.nn.Linear stores a weight
  int scales_a = -1;         // none: all 1
  int scales_b = -1;

  bool is_scaled() const { return scales_a >= 0 || scales_b >= 0; }
  // All that it reads; below 0: no tensor.
  std::array<int, 4> tensors() const { return {a, scales_a, b, scales_b}; }

  friend bool operator==(const GemmSegment&, const GemmSegment&) = default;
};

// What steps do: one struct a kind, with what is its own. Tensors are indices into
// Program::tensors.
namespace steps {

// ---- Values ----

// [M, N] accumulator, fp32: the sum over segments of op(A)·op(B).
struct Gemm {
  std::vector<GemmSegment> segments{};
  bool operator==(const Gemm&) const = default;
};
// [M, N]; may repeat along columns (a RoPE table for each head) and gather rows by an index vector.
struct LoadTile {
  int tensor = -1;
  int row_index = -1;  // an i32 [M, 1] tensor; row i of the tile is row row_index[i]
  Dim repeat = 1;      // the stored columns are repeated this many times, side by side
  bool operator==(const LoadTile&) const = default;
};
struct LoadPerRow {  // [M, 1]
  int tensor = -1;
  bool operator==(const LoadPerRow&) const = default;
};
struct LoadPerColumn {  // [1, N]; may repeat along columns (a weight of each head)
  int tensor = -1;
  Dim repeat = 1;
  bool operator==(const LoadPerColumn&) const = default;
};
struct LoadScalar {  // [1, 1]
  int tensor = -1;
  bool operator==(const LoadScalar&) const = default;
};
struct Constant {  // [1, 1]
  double number = 0;
  bool operator==(const Constant&) const = default;
};
struct Size {  // [1, 1]: the value of a size, as a number
  Dim size = 1;
  bool operator==(const Size&) const = default;
};
struct ColumnIndex {  // [1, N]: 0, 1, ..., N - 1
  bool operator==(const ColumnIndex&) const = default;
};
struct Apply {  // an elementwise operation; operands broadcast along unit dimensions
  Elementwise op = Elementwise::add;
  bool operator==(const Apply&) const = default;
};
// [M, N] -> [M, N/2]: one member of every pair. Within each `group` columns the first half are
// members 0, the second half members 1 (2: interleaved; N: concatenated; head size: half-split
// RoPE).
struct SplitPair {
  Dim group = 0;
  int which = 0;  // 0 or 1
  bool operator==(const SplitPair&) const = default;
};
struct MergePairs {  // two [M, N/2] -> [M, N]: the inverse of SplitPair
  Dim group = 0;
  bool operator==(const MergePairs&) const = default;
};
// The value rounded to a type: what a later program will read (see docs/numerics.md).
struct AsStored {
  DType dtype = DType::f32;
  bool operator==(const AsStored&) const = default;
};
// [M, N] -> [M, N/group]: sums over groups of columns that a tile holds whole (a head).
struct ReduceGroup {
  Dim group = 0;
  bool operator==(const ReduceGroup&) const = default;
};
// [M, N] -> [M, N/group]: the largest magnitude of each group of columns. NaN lies above all
// numbers.
struct GroupAbsMax {
  Dim group = 0;
  bool operator==(const GroupAbsMax&) const = default;
};
struct RepeatGroup {  // [M, N/group] -> [M, N]: the adjoint of ReduceGroup
  Dim group = 0;
  bool operator==(const RepeatGroup&) const = default;
};
// [M, 1]: x[i, index[i]]; operands (x, index vector). Only storable (StoreVector). 0 where the
// index lies outside [0, N).
struct SelectColumn {
  bool operator==(const SelectColumn&) const = default;
};
struct Combine {  // finalizer: a partial tensor -> [M, 1] or [1, N]
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  int lane = 0;  // which result of the kind, or kBothResults
  bool operator==(const Combine&) const = default;
};
struct ReduceVector {  // finalizer: [M, 1] or [1, N] -> [1, 1], sum in a fixed order
  bool operator==(const ReduceVector&) const = default;
};
struct TransposeVector {  // finalizer: [M, 1] <-> [1, M]
  bool operator==(const TransposeVector&) const = default;
};

// ---- Effects; they have no value ----

struct StoreTile {  // operand -> tensor, rounded to nearest even
  int tensor = -1;
  bool operator==(const StoreTile&) const = default;
};
struct StoreVector {  // a per-row, per-column or scalar value -> tensor
  int tensor = -1;
  bool operator==(const StoreVector&) const = default;
};
// Operand [M, N] -> tensor [N, M], rounded as StoreTile rounds. A product of 8-bit operands wants
// both with their contraction along the rows: who makes a value can leave it in both orders.
struct StoreTransposed {
  int tensor = -1;
  bool operator==(const StoreTransposed&) const = default;
};
// Scalar = max(scalar, |every element of the operand|), in fp32. Order does not matter, so it is
// repeatable. The largest magnitudes of a step are the scales of later ones (docs/fp8.md).
struct AbsMaxInto {
  int tensor = -1;
  bool operator==(const AbsMaxInto&) const = default;
};
struct RowPartial {  // operand reduced along columns, one partial for 64 base columns
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  bool operator==(const RowPartial&) const = default;
};
struct ColumnPartial {  // operand reduced along rows, one partial for 64 rows
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  bool operator==(const ColumnPartial&) const = default;
};

}  // namespace steps

// A step's kind, and the names of the kinds in the same order.
using StepWork =
    std::variant<steps::Gemm, steps::LoadTile, steps::LoadPerRow, steps::LoadPerColumn,
                 steps::LoadScalar, steps::Constant, steps::ColumnIndex, steps::Apply,
                 steps::SplitPair, steps::MergePairs, steps::AsStored, steps::ReduceGroup,
                 steps::RepeatGroup, steps::SelectColumn, steps::Combine, steps::ReduceVector,
                 steps::TransposeVector, steps::StoreTile, steps::StoreVector, steps::RowPartial,
                 steps::ColumnPartial, steps::StoreTransposed, steps::AbsMaxInto,
                 steps::GroupAbsMax, steps::Size>;
enum class StepKind : uint8_t {
  gemm,
  load_tile,
  load_per_row,
  load_per_column,
  load_scalar,
  constant,
  column_index,
  elementwise,
  split_pair,
  merge_pairs,
  as_stored,
  reduce_group,
  repeat_group,
  select_column,
  combine,
  reduce_vector,
  transpose_vector,
  store_tile,
  store_vector,
  row_partial,
  column_partial,
  store_transposed,
  abs_max_into,
  group_abs_max,
  size,
};

struct Step {
  StepWork work{};
  Shape shape{};                // of the value; of an effect: of its operand
  std::vector<int> operands{};  // earlier steps

  StepKind kind() const { return static_cast<StepKind>(work.index()); }
  // Fields of its kind, for who asks of any step; of a kind without one, the struct's default.
  const std::vector<GemmSegment>& segments() const;
  int tensor() const;  // an effect writes it, others read it
  int row_index() const;
  const Dim& repeat() const;
  double number() const;
  Elementwise op() const;
  const Dim& group() const;
  const Dim& size() const;
  int which() const;
  DType dtype() const;
  PartialKind partial() const;
  int lane() const;

  friend bool operator==(const Step&, const Step&) = default;
};

struct Program {
  std::string name;
  std::vector<TensorDecl> tensors;
  std::vector<Step> steps;

  friend bool operator==(const Program&, const Program&) = default;
};

// The tile-valued steps of a program fall into groups that depend on one another elementwise; each
// group is a tile space [rows, cols], whose tiles are independent. `cols` are the base columns: the
// width of its narrowest value (pairs: the half width). A value of twice that width lies in the
// tile through its pairs. Finalizer steps (vectors only) form spaces [M, 1], [1, N] and [1, 1] in
// the same way. Constants and vector loads are listed in each space that uses them.
struct TileSpace {
  Shape shape;             // [rows, base columns]
  std::vector<int> steps;  // ascending
};
std::vector<TileSpace> tile_spaces(const Program& program);

// Throws Error, naming the step and what is wrong, unless the program is well formed.
void verify(const Program& program);

// The .coda text of a program; parse_program(text(p)) == p. Throws ProgramError, with all mistakes
// of the text (coda/program_error.h); `file` is the name that it has there.
std::string text(const Program& program);
Program parse_program(std::string_view text, std::string_view file = "text");

}  // namespace CODA_API coda
