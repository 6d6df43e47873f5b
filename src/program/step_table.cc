// SPDX-License-Identifier: Apache-2.0
// Combines the rows of all groups in the order of the enum.
#include "program/step_table.h"

#include <algorithm>
#include <utility>

namespace coda::program {
namespace {

constexpr size_t kKinds = std::variant_size_v<StepWork>;
static_assert(kKinds == static_cast<size_t>(StepKind::size) + 1);

template <size_t... kind>
std::array<StepWork, kKinds> all_kinds(std::index_sequence<kind...>) {
  return {StepWork(std::in_place_index<kind>)...};
}

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

const StepInfo& info(StepKind kind) { return table()[static_cast<size_t>(kind)]; }

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

Step vector_load(int tensor, const Shape& shape) {
  Step load{work_of(load_kind(shape)), shape};
  *fields_of(load).tensor = tensor;
  return load;
}
Step tile_load(int tensor, const Shape& shape) { return {steps::LoadTile{tensor}, shape}; }
Step constant(double number) { return {steps::Constant{number}}; }
Step vector_store(int tensor, int value, const Shape& shape) {
  return {steps::StoreVector{tensor}, shape, {value}};
}
Step tile_store(int tensor, int value, const Shape& shape) {
  return {steps::StoreTile{tensor}, shape, {value}};
}
Step transposed_store(int tensor, int value, const Shape& shape) {
  return {steps::StoreTransposed{tensor}, shape, {value}};
}
Step abs_max_into(int tensor, int value, const Shape& shape) {
  return {steps::AbsMaxInto{tensor}, shape, {value}};
}
Step applied(Elementwise op, std::vector<int> operands, const Shape& shape) {
  return {steps::Apply{op}, shape, std::move(operands)};
}

bool is_constant(const Step& step) { return step.kind() == StepKind::constant; }
bool is_elementwise(const Step& step) { return step.kind() == StepKind::elementwise; }
bool applies(const Step& step, Elementwise op) { return is_elementwise(step) && step.op() == op; }
bool has_scales(const Step& step) {
  return std::any_of(step.segments().begin(), step.segments().end(),
                     [](const GemmSegment& s) { return s.is_scaled(); });
}
bool has_product(const Program& program) {
  return std::any_of(program.steps.begin(), program.steps.end(), is_product);
}

Program with_numbers_for_sizes(Program program, const DimValues& sizes) {
  for (Step& step : program.steps) {
    if (is_size(step)) step = constant(static_cast<double>(step.size().evaluate(sizes)));
  }
  return program;
}

StepWork work_of(StepKind kind) {
  return all_kinds(std::make_index_sequence<kKinds>())[static_cast<size_t>(kind)];
}

StepFields fields_of(Step& step) {
  StepFields fields;
  const auto point_at = [&](auto& work) {
    if constexpr (requires { work.segments; }) fields.segments = &work.segments;
    if constexpr (requires { work.tensor; }) fields.tensor = &work.tensor;
    if constexpr (requires { work.row_index; }) fields.row_index = &work.row_index;
    if constexpr (requires { work.repeat; }) fields.repeat = &work.repeat;
    if constexpr (requires { work.number; }) fields.number = &work.number;
    if constexpr (requires { work.op; }) fields.op = &work.op;
    if constexpr (requires { work.group; }) fields.group = &work.group;
    if constexpr (requires { work.size; }) fields.size = &work.size;
    if constexpr (requires { work.which; }) fields.which = &work.which;
    if constexpr (requires { work.dtype; }) fields.dtype = &work.dtype;
    if constexpr (requires { work.partial; }) fields.partial = &work.partial;
    if constexpr (requires { work.lane; }) fields.lane = &work.lane;
  };
  std::visit(point_at, step.work);
  return fields;
}

std::vector<int*> tensor_fields(Step& step) {
  std::vector<int*> tensors;
  const StepFields fields = fields_of(step);
  if (fields.segments != nullptr) {
    for (GemmSegment& segment : *fields.segments) {
      tensors.push_back(&segment.a);
      if (segment.scales_a != -1) tensors.push_back(&segment.scales_a);
      tensors.push_back(&segment.b);
      if (segment.scales_b != -1) tensors.push_back(&segment.scales_b);
    }
  }
  if (fields.tensor != nullptr) tensors.push_back(fields.tensor);
  if (fields.row_index != nullptr && *fields.row_index != -1) tensors.push_back(fields.row_index);
  return tensors;
}

std::vector<int> tensors_of(const Step& step) {
  std::vector<int> tensors;
  for (const int* field : tensor_fields(const_cast<Step&>(step))) tensors.push_back(*field);
  return tensors;
}

}  // namespace coda::program

namespace coda {
namespace {

program::StepFields fields_of(const Step& step) {
  return program::fields_of(const_cast<Step&>(step));
}

// The field to which a member of StepFields points, or the default.
template <typename T>
T field(const Step& step, T* program::StepFields::* member, T otherwise) {
  const T* found = fields_of(step).*member;
  return found != nullptr ? *found : otherwise;
}

const std::vector<GemmSegment> kNoSegments;
const Dim kNoGroup = 0;
const Dim kOnce = 1;

}  // namespace

using F = program::StepFields;
const std::vector<GemmSegment>& Step::segments() const {
  const auto* found = fields_of(*this).segments;
  return found != nullptr ? *found : kNoSegments;
}
const Dim& Step::group() const {
  const Dim* found = fields_of(*this).group;
  return found != nullptr ? *found : kNoGroup;
}
const Dim& Step::size() const {
  const Dim* found = fields_of(*this).size;
  return found != nullptr ? *found : kOnce;
}
const Dim& Step::repeat() const {
  const Dim* found = fields_of(*this).repeat;
  return found != nullptr ? *found : kOnce;
}
int Step::tensor() const { return field(*this, &F::tensor, -1); }
int Step::row_index() const { return field(*this, &F::row_index, -1); }
double Step::number() const { return field(*this, &F::number, 0.0); }
Elementwise Step::op() const { return field(*this, &F::op, Elementwise::add); }
int Step::which() const { return field(*this, &F::which, 0); }
DType Step::dtype() const { return field(*this, &F::dtype, DType::f32); }
PartialKind Step::partial() const { return field(*this, &F::partial, PartialKind::sum); }
int Step::lane() const { return field(*this, &F::lane, 0); }

}  // namespace coda
