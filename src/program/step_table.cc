// SPDX-License-Identifier: Apache-2.0
#include "program/step_table.h"

#include <algorithm>

namespace coda::program {
namespace {

constexpr auto kKinds = static_cast<size_t>(StepKind::column_partial) + 1;
constexpr StepInfo kUnknown;

// In the order of the enumeration.
const std::array<StepInfo, kKinds>& table() {
  static const auto rows = [] {
    std::array<StepInfo, kKinds> all;
    for (const auto group : {source_steps(), vector_steps(), elementwise_steps(), column_steps(),
                             finalizer_steps(), effect_steps()}) {
      for (const StepInfo& row : group) all[static_cast<size_t>(row.kind)] = row;
    }
    return all;
  }();
  return rows;
}

}  // namespace

bool is_known(StepKind kind) { return static_cast<size_t>(kind) < kKinds; }

const StepInfo& info(StepKind kind) {
  return is_known(kind) ? table()[static_cast<size_t>(kind)] : kUnknown;
}

std::optional<StepKind> step_by_word(std::string_view word) {
  const auto* const found = std::find_if(table().begin(), table().end(), [&](const StepInfo& row) {
    return !word.empty() && (row.words[0] == word || row.words[1] == word);
  });
  return found == table().end() ? std::nullopt : std::optional(found->kind);
}

StepKind load_kind(const Shape& shape) {
  return shape.is_per_row()      ? StepKind::load_per_row
         : shape.is_per_column() ? StepKind::load_per_column
                                 : StepKind::load_scalar;
}

std::vector<int*> tensor_fields(Step& step) {
  std::vector<int*> fields;
  for (GemmSegment& segment : step.segments) {
    fields.push_back(&segment.a);
    fields.push_back(&segment.b);
  }
  if (info(step.kind).fields & kTensor) fields.push_back(&step.tensor);
  if (step.row_index != -1) fields.push_back(&step.row_index);
  return fields;
}

std::vector<int> tensors_of(const Step& step) {
  std::vector<int> tensors;
  for (const int* field : tensor_fields(const_cast<Step&>(step))) tensors.push_back(*field);
  return tensors;
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
