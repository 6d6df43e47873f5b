// SPDX-License-Identifier: Apache-2.0
// The table of step kinds: one row per kind, with everything that the front end knows about it. The
// parser, printer, assembler, verifier, float64 evaluator and lift read the rows; only backends
// have separate code for a kind. The rows are in steps_*.cc, by group.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "coda/graph.h"
#include "coda/program.h"

namespace coda::program {

struct Sizes;
struct ShapeRule;
struct StepCheck;
struct StepValue;
struct Evaluation;
struct Lifting;

enum class StepGroup : uint8_t {
  source,       // makes a tile of its own
  vector,       // loads, constants and indices; listed in each tile space that uses them
  elementwise,  // of its operands' tile, at the same position
  columns,      // of its operand's tile, with fewer or more columns
  selection,
  finalizer,  // on vectors alone
  effect,     // no value
};

// The arguments of a step in text, in order.
enum class Argument : uint8_t {
  none,
  value,         // the next operand
  segments,      // x[M, K], w[N, K], nt; ...
  tile,          // a tensor that is read: x[M, N]
  tile_options,  // rows=i[M], repeat=2, each where it is not the default
  per_row,       // a vector that is read: r[M]
  per_column,    // b[N]
  repeat,        // repeat=2, where it is not the default
  scalar,        // c
  columns,       // a column index's: N, may be left out
  size,          // a size, N, or a sum of sizes such as 2*I + 4
  pair_group,    // interleaved, concatenated, or columns
  group,         // columns
  dtype,
  partial,            // sum(p[M, N])
  result,             // of a partial with two: its name
  target,             // a tensor that is stored, whose shape is the value's
  transposed_target,  // or the value's transposed
  scalar_target,      // a scalar that is read and stored
  reduction,          // sum(the next operand)
};

// How the columns of the value differ from the operand's.
enum class ColumnChange : uint8_t {
  none,
  split,     // one member of every pair
  merged,    // pairs, of both members
  summed,    // one for each group: reduced
  repeated,  // a group for each
};

// What an effect stores in its tensor.
enum class Leaves : uint8_t {
  nothing,
  tile,
  vector,
  row_partial,
  column_partial,
  transposed_tile,
  maximum,
};

struct StepInfo {
  StepKind kind{};
  std::string_view name = "?";
  StepGroup group{};
  std::array<std::string_view, 2> words{};  // functions in program text
  std::array<Argument, 3> arguments{};      // none: the text is no function
  std::string_view value_name = "v";        // in printed text, if it names no tensor
  ColumnChange columns{};
  Leaves leaves{};
  Sizes (*shape)(const ShapeRule&) = nullptr;          // the shape of its value
  void (*check)(const StepCheck&) = nullptr;           // further rules, if any
  StepValue (*evaluate)(const Evaluation&) = nullptr;  // in float64; of an effect: what it stores
  // The size of fp32 errors, relative to one unit; null: it only moves values.
  StepValue (*error_scale)(const Evaluation&, const StepValue& value) = nullptr;
  Value (*lift)(const Lifting&) = nullptr;  // of an effect: none

  int operands() const {
    const auto is_operand = [](Argument a) {
      return a == Argument::value || a == Argument::reduction;
    };
    return static_cast<int>(std::count_if(arguments.begin(), arguments.end(), is_operand));
  }
  bool takes(Argument argument) const {
    return std::find(arguments.begin(), arguments.end(), argument) != arguments.end();
  }
};

// Rows by group, in steps_*.cc.
std::span<const StepInfo> source_steps();
std::span<const StepInfo> vector_steps();
std::span<const StepInfo> elementwise_steps();
std::span<const StepInfo> column_steps();
std::span<const StepInfo> finalizer_steps();
std::span<const StepInfo> effect_steps();

const StepInfo& info(StepKind kind);
std::optional<StepKind> step_by_word(std::string_view word);
inline std::string_view name_of(StepKind kind) { return info(kind).name; }
inline bool is_effect(StepKind kind) { return info(kind).leaves != Leaves::nothing; }

// ---- Queries for passes and backends. Rows answer them, so that new kinds are covered.

inline const StepInfo& info(const Step& step) { return info(step.kind()); }
inline bool is_effect(const Step& step) { return is_effect(step.kind()); }
inline bool is_product(const Step& step) { return info(step).takes(Argument::segments); }
inline bool is_tile_load(const Step& step) { return info(step).takes(Argument::tile); }
// A load of a vector or scalar; its shape says along which dimension.
inline bool is_vector_load(const Step& step) {
  const StepInfo& row = info(step);
  return row.takes(Argument::per_row) || row.takes(Argument::per_column) ||
         row.takes(Argument::scalar);
}
inline bool is_size(const Step& step) { return step.kind() == StepKind::size; }
inline bool is_column_index(const Step& step) { return info(step).takes(Argument::columns); }
inline bool is_combination(const Step& step) { return info(step).takes(Argument::partial); }
inline bool is_rounding(const Step& step) { return info(step).takes(Argument::dtype); }
inline bool is_selection(const Step& step) { return info(step).group == StepGroup::selection; }
inline bool splits_pairs(const Step& step) { return info(step).columns == ColumnChange::split; }
inline bool merges_pairs(const Step& step) { return info(step).columns == ColumnChange::merged; }
inline bool sums_groups(const Step& step) { return info(step).columns == ColumnChange::summed; }
// Whether it takes the largest magnitude of each group instead of a sum.
inline bool takes_largest_of_groups(const Step& step) {
  return step.kind() == StepKind::group_abs_max;
}
inline bool repeats_groups(const Step& step) {
  return info(step).columns == ColumnChange::repeated;
}
inline bool is_tile_store(const Step& step) { return info(step).leaves == Leaves::tile; }
inline bool is_vector_store(const Step& step) { return info(step).leaves == Leaves::vector; }
inline bool is_row_partial(const Step& step) { return info(step).leaves == Leaves::row_partial; }
inline bool is_column_partial(const Step& step) {
  return info(step).leaves == Leaves::column_partial;
}
inline bool is_transposed_store(const Step& step) {
  return info(step).leaves == Leaves::transposed_tile;
}
// Whether it also reads its tensor.
inline bool is_maximum(const Step& step) { return info(step).leaves == Leaves::maximum; }
// Whether it must be a statement of its own in text.
inline bool is_statement(const Step& step) { return is_product(step) || splits_pairs(step); }
bool is_constant(const Step& step);
bool has_scales(const Step& step);  // a product of which an operand has
bool is_elementwise(const Step& step);
bool applies(const Step& step, Elementwise op);
bool has_product(const Program& program);
// Replaces the sizes of a program by their values, because backends compile for given sizes.
Program with_numbers_for_sizes(Program program, const DimValues& sizes);

// ---- Steps that passes add.

StepKind load_kind(const Shape& shape);            // of a vector of that shape
Step vector_load(int tensor, const Shape& shape);  // or of a scalar
Step tile_load(int tensor, const Shape& shape);
Step constant(double number);
Step vector_store(int tensor, int value, const Shape& shape);
Step tile_store(int tensor, int value, const Shape& shape);
Step transposed_store(int tensor, int value, const Shape& shape);  // `shape` of the value
Step abs_max_into(int tensor, int value, const Shape& shape);
Step applied(Elementwise op, std::vector<int> operands, const Shape& shape);

// The step of a kind with its struct's defaults.
StepWork work_of(StepKind kind);

// Pointers to the fields of a step; null for fields that its kind lacks.
struct StepFields {
  std::vector<GemmSegment>* segments = nullptr;
  int* tensor = nullptr;
  int* row_index = nullptr;
  Dim* repeat = nullptr;
  double* number = nullptr;
  Elementwise* op = nullptr;
  Dim* group = nullptr;
  Dim* size = nullptr;
  int* which = nullptr;
  DType* dtype = nullptr;
  PartialKind* partial = nullptr;
  int* lane = nullptr;
};
StepFields fields_of(Step& step);

// The indices of all tensors that the step names, in text order, and pointers to these indices.
std::vector<int> tensors_of(const Step& step);
std::vector<int*> tensor_fields(Step& step);

}  // namespace coda::program
