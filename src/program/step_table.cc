// SPDX-License-Identifier: Apache-2.0
#include "program/step_table.h"

#include <algorithm>

namespace coda::program {
namespace {

using K = StepKind;
using G = StepGroup;

// In the order of the enumeration.
constexpr StepInfo kTable[] = {
    {K::gemm, "gemm", G::source, 0, kSegments, {"gemm"}, "acc"},
    {K::load_tile, "load_tile", G::source, 0, kTensor | kRowIndex | kRepeat, {"tile"}, ""},
    {K::load_per_row, "load_per_row", G::vector, 0, kTensor, {"per_row"}, ""},
    {K::load_per_column, "load_per_column", G::vector, 0, kTensor, {"per_column"}, ""},
    {K::load_scalar, "load_scalar", G::vector, 0, kTensor, {"scalar"}, ""},
    {K::constant, "constant", G::vector, 0, kNumber, {}, "c"},
    {K::column_index, "column_index", G::vector, 0, 0, {"column_index"}, "column"},
    {K::elementwise, "elementwise", G::elementwise, kOperandsOfOp, kOp, {}, "v"},
    {K::split_pair, "split_pair", G::columns, 1, kGroup | kWhich, {"split_pairs"}, "v"},
    {K::merge_pairs, "merge_pairs", G::columns, 2, kGroup, {"merge_pairs"}, "merged"},
    {K::as_stored, "as_stored", G::elementwise, 1, kDType, {"as_stored"}, "v"},
    {K::reduce_group, "reduce_group", G::columns, 1, kGroup, {"reduce_group"}, "v"},
    {K::repeat_group, "repeat_group", G::columns, 1, kGroup, {"repeat_group"}, "v"},
    {K::select_column, "select_column", G::selection, 2, 0, {"select_column"}, "v"},
    {K::combine,
     "combine",
     G::finalizer,
     0,
     kTensor | kPartial | kLane,
     {"combine_rows", "combine_columns"},
     ""},
    {K::reduce_vector, "reduce_vector", G::finalizer, 1, 0, {"reduce_vector"}, "v"},
    {K::transpose_vector, "transpose_vector", G::finalizer, 1, 0, {"transpose_vector"}, "v"},
    {K::store_tile, "store_tile", G::effect, 1, kTensor, {"store"}, ""},
    {K::store_vector, "store_vector", G::effect, 1, kTensor, {}, ""},  // "store" too
    {K::row_partial, "row_partial", G::effect, 1, kTensor | kPartial, {"row_partial"}, ""},
    {K::column_partial, "column_partial", G::effect, 1, kTensor | kPartial, {"column_partial"}, ""},
};

constexpr bool in_order() {
  int place = 0;
  for (const StepInfo& row : kTable) {
    if (static_cast<int>(row.kind) != place++) return false;
  }
  return place == static_cast<int>(K::column_partial) + 1;
}
static_assert(in_order());

constexpr StepInfo kUnknown{K::gemm, "?", G::source, kOperandsOfOp, 0, {}, ""};

}  // namespace

const StepInfo& info(StepKind kind) {
  const auto place = static_cast<size_t>(kind);
  return place < std::size(kTable) ? kTable[place] : kUnknown;
}

std::optional<StepKind> step_by_word(std::string_view word) {
  const auto* const found =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const auto& row) {
        return !word.empty() && (row.words[0] == word || row.words[1] == word);
      });
  return found == std::end(kTable) ? std::nullopt : std::optional(found->kind);
}

StepKind load_kind(const Shape& shape) {
  return shape.is_per_row()      ? StepKind::load_per_row
         : shape.is_per_column() ? StepKind::load_per_column
                                 : StepKind::load_scalar;
}

Step with_own_fields(const Step& step) {
  const int fields = info(step.kind).fields;
  Step own{step.kind, step.shape, step.operands};
  if (fields & kTensor) own.tensor = step.tensor;
  if (fields & kSegments) own.segments = step.segments;
  if (fields & kRowIndex) own.row_index = step.row_index;
  if (fields & kRepeat) own.repeat = step.repeat;
  if (fields & kOp) own.op = step.op;
  if (fields & kGroup) own.group = step.group;
  if (fields & kWhich) own.which = step.which;
  if (fields & kLane) own.lane = step.lane;
  if (fields & kNumber) own.number = step.number;
  if (fields & kPartial) own.partial = step.partial;
  if (fields & kDType) own.dtype = step.dtype;
  return own;
}

}  // namespace coda::program
