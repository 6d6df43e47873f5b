// SPDX-License-Identifier: Apache-2.0
// A Program describes the computation of tiles: a source (GEMMs, or tiles loaded from memory) and a
// straight-line epilogue over one tile. The epilogue has five kinds of primitives: elementwise,
// vector load and store, tile load and store, tile reduction, stateful. Finalizers, which combine
// partial reductions, and programs without a GEMM are Programs too.
//
// A Program is a list of steps in static single assignment form: the index i names the value of
// step i. A backend may compute the steps of one tile space (see tile_spaces) tile by tile, in any
// order and with any tile shape, and must give the same bits.
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
    64;  // base columns (row partials) or rows (column partials) of one partial

// Number of spans of kPartialSpan columns or rows; the last span may be shorter.
constexpr int64_t partial_spans(int64_t size) { return (size + kPartialSpan - 1) / kPartialSpan; }

// The memory layout of a tensor that a program names.
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
  int lanes = 1;             // of a partial: one or two
  bool is_constant = false;  // only read, and the backward computes no gradient for it

  friend bool operator==(const TensorDecl&, const TensorDecl&) = default;
};

// The tensor in memory as one dense matrix: [rows, cols]; a row partial is [lanes * rows, ceil(cols
// / 64)], a column partial [lanes * ceil(rows / 64), cols].
struct PhysicalShape {
  int64_t rows = 0;
  int64_t cols = 0;
};
PhysicalShape physical_shape(const TensorDecl& decl, const DimValues& sizes);

// Elements along the contraction that share one scale of an 8-bit operand; for block scales also
// the number of rows.
inline constexpr int64_t kScaleSpan = 128;

// One K segment of a GEMM: op(A)[M, K] · op(B)[K, N]. Fields are indices into Program::tensors. An
// 8-bit operand that is stored with K along its rows may have fp32 scales of shape [rows, K / 128],
// or [rows / 128, K / 128] for blocks of 128 x 128; an element is its code times its scale. Each
// span of 128 along K is accumulated separately and multiplied by both scales before it is added to
// the total.
struct GemmSegment {
  int a = -1;
  int b = -1;
  bool transpose_a = false;  // A is stored [K, M]
  bool transpose_b = false;  // B is stored [N, K], as torch.nn.Linear stores a weight
  int scales_a = -1;         // -1: all scales are 1
  int scales_b = -1;

  bool is_scaled() const { return scales_a >= 0 || scales_b >= 0; }
  // All tensors that it reads; negative entries: no tensor.
  std::array<int, 4> tensors() const { return {a, scales_a, b, scales_b}; }

  friend bool operator==(const GemmSegment&, const GemmSegment&) = default;
};

// The work of a step: one struct for each kind, with the fields of that kind. Tensors are indices
// into Program::tensors.
namespace steps {

// ---- Values ----

// [M, N] accumulator, fp32: the sum over segments of op(A)·op(B).
struct Gemm {
  std::vector<GemmSegment> segments{};
  bool operator==(const Gemm&) const = default;
};
// [M, N]; columns may be repeated (a RoPE table for each head), and rows may be gathered by an
// index vector.
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
struct LoadPerColumn {  // [1, N]; may be repeated along columns (a weight for each head)
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
struct Size {  // [1, 1]: the value of a size
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
// [M, N] -> [M, N/2]: one member of every pair. In each group of `group` columns the first half
// holds members 0, the second half members 1. (group 2: interleaved; N: concatenated; head size:
// half-split RoPE.)
struct SplitPair {
  Dim group = 0;
  int which = 0;  // 0 or 1
  bool operator==(const SplitPair&) const = default;
};
struct MergePairs {  // two [M, N/2] -> [M, N]: the inverse of SplitPair
  Dim group = 0;
  bool operator==(const MergePairs&) const = default;
};
// The value rounded to a type, as a later program will read it (docs/numerics.md).
struct AsStored {
  DType dtype = DType::f32;
  bool operator==(const AsStored&) const = default;
};
// [M, N] -> [M, N/group]: sums over groups of columns (heads). A tile must hold whole groups.
struct ReduceGroup {
  Dim group = 0;
  bool operator==(const ReduceGroup&) const = default;
};
// [M, N] -> [M, N/group]: the largest magnitude of each group of columns. NaN counts as larger than
// any number.
struct GroupAbsMax {
  Dim group = 0;
  bool operator==(const GroupAbsMax&) const = default;
};
struct RepeatGroup {  // [M, N/group] -> [M, N]: the adjoint of ReduceGroup
  Dim group = 0;
  bool operator==(const RepeatGroup&) const = default;
};
// [M, 1]: x[i, index[i]]; operands (x, index vector). Its value can only be stored (StoreVector). 0
// for an index outside [0, N).
struct SelectColumn {
  bool operator==(const SelectColumn&) const = default;
};
struct Combine {  // finalizer: a partial tensor -> [M, 1] or [1, N]
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  int lane = 0;  // number of the result, or kBothResults
  bool operator==(const Combine&) const = default;
};
struct ReduceVector {  // finalizer: [M, 1] or [1, N] -> [1, 1], summed in a fixed order
  bool operator==(const ReduceVector&) const = default;
};
struct TransposeVector {  // finalizer: [M, 1] <-> [1, M]
  bool operator==(const TransposeVector&) const = default;
};

// ---- Effects (no value) ----

struct StoreTile {  // operand -> tensor, rounded to nearest even
  int tensor = -1;
  bool operator==(const StoreTile&) const = default;
};
struct StoreVector {  // a per-row, per-column or scalar value -> tensor
  int tensor = -1;
  bool operator==(const StoreVector&) const = default;
};
// Operand [M, N] -> tensor [N, M], rounded as StoreTile. A GEMM with 8-bit operands needs both
// operands stored with the contraction along their rows, so a program can store a value in both
// orders.
struct StoreTransposed {
  int tensor = -1;
  bool operator==(const StoreTransposed&) const = default;
};
// Scalar = max(scalar, |every element of the operand|), in fp32. A maximum does not depend on the
// order, so the result is repeatable. These magnitudes determine the scales of later training steps
// (docs/fp8.md).
struct AbsMaxInto {
  int tensor = -1;
  bool operator==(const AbsMaxInto&) const = default;
};
struct RowPartial {  // operand reduced along columns, one partial per 64 base columns
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  bool operator==(const RowPartial&) const = default;
};
struct ColumnPartial {  // operand reduced along rows, one partial per 64 rows
  int tensor = -1;
  PartialKind partial = PartialKind::sum;
  bool operator==(const ColumnPartial&) const = default;
};

}  // namespace steps

// The work of a step, and the names of the kinds in the same order.
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
  Shape shape{};                // of the value, or of an effect's operand
  std::vector<int> operands{};  // earlier steps

  StepKind kind() const { return static_cast<StepKind>(work.index()); }
  // Fields of the work, for code that handles any kind; if the kind has no such field, its default.
  const std::vector<GemmSegment>& segments() const;
  int tensor() const;  // an effect writes it, other kinds read it
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

// The tile-valued steps of a program form groups that depend on one another elementwise. Each group
// is a tile space [rows, cols] with independent tiles. `cols` are the base columns: the width of
// the narrowest value (with pairs: the half width). A value of twice that width is represented by
// its pairs. Finalizer steps (vectors only) form spaces [M, 1], [1, N] and [1, 1] in the same way.
// Constants and vector loads are listed in each space that uses them.
struct TileSpace {
  Shape shape;             // [rows, base columns]
  std::vector<int> steps;  // ascending
};
std::vector<TileSpace> tile_spaces(const Program& program);

// Throws Error, naming the step and what is wrong, unless the program is well formed.
void verify(const Program& program);

// The .coda text of a program; parse_program(text(p)) == p. parse_program throws ProgramError with
// all mistakes (coda/program_error.h); `file` is the text's name in messages.
std::string text(const Program& program);
Program parse_program(std::string_view text, std::string_view file = "text");

}  // namespace CODA_API coda
