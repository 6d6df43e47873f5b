// SPDX-License-Identifier: Apache-2.0
// Each call makes a step through the assembler and records its line of C++ for errors that are
// found later.
#include "coda/program_builder.h"

#include <vector>

#include "coda/error.h"
#include "program/assembler.h"
#include "program/problem.h"

namespace coda {
namespace {

using program::parse_mention;
using program::SegmentMention;
using program::StepMention;
using program::TensorMention;

Error error_at(const std::source_location& where, const std::string& message) {
  const std::string_view file = where.file_name();
  return Error(std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(where.line()) +
               ": " + message);
}

}  // namespace

struct ProgramBuilder::State {
  explicit State(std::string name) : name(name), assembler(std::move(name)) {}
  std::string name;
  program::Assembler assembler;
  std::vector<std::source_location> places;  // of each step
};

ProgramBuilder::ProgramBuilder(std::string name)
    : state_(std::make_unique<State>(std::move(name))) {}
ProgramBuilder::~ProgramBuilder() = default;

int ProgramBuilder::step_of(TileValue value) const {
  if (value.builder_ != this) throw Error("a value belongs to another ProgramBuilder");
  return value.step_;
}

TileValue ProgramBuilder::guarded(Where where, auto&& action) {
  try {
    const int step = action();
    state_->places.resize(state_->assembler.step_count(), where);
    return {this, step};
  } catch (const program::Problem& problem) {
    throw error_at(where, problem.message);
  } catch (const Error& error) {
    throw error_at(where, error.what());
  }
}

// Makes a step with these operands; `complete` adds the rest.
TileValue ProgramBuilder::make(Where where, StepWork work, const std::vector<TileValue>& operands,
                               auto&& complete) {
  return guarded(where, [&] {
    StepMention step{.step = {.work = std::move(work)}};
    for (const TileValue& operand : operands) step.step.operands.push_back(step_of(operand));
    complete(step);
    return state_->assembler.make(step);
  });
}

TileValue ProgramBuilder::make(Where where, StepWork work, const std::vector<TileValue>& operands) {
  return make(where, std::move(work), operands, [](StepMention&) {});
}

TileValue ProgramBuilder::make(Where where, StepWork work, const std::vector<TileValue>& operands,
                               std::string_view tensor) {
  return make(where, std::move(work), operands,
              [&](StepMention& m) { m.tensor = parse_mention(tensor); });
}

TileValue ProgramBuilder::gemm(std::string_view a, std::string_view b, std::string_view layout,
                               Where where) {
  return gemm({{a, b, layout}}, where);
}

TileValue ProgramBuilder::gemm(std::initializer_list<Segment> segments, Where where) {
  return make(where, steps::Gemm{}, {}, [&](StepMention& m) {
    for (const Segment& segment : segments) {
      m.segments.push_back(
          {program::parse_operand(segment.a), program::parse_operand(segment.b), std::nullopt});
      if (!segment.layout.empty()) m.segments.back().layout = std::string(segment.layout);
    }
    SegmentMention& first = m.segments.front();
    if (segments.size() == 1 && state_->assembler.step_count() == 0 &&
        first.a.tensor.dims.empty() && first.b.tensor.dims.empty()) {
      first.a.tensor.dims = {"M", "K"};
      first.b.tensor.dims = {"N", "K"};
    }
  });
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, Where where) {
  return load_tile(tensor, TileOptions{}, where);
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, TileOptions options, Where where) {
  return make(where, steps::LoadTile{.repeat = std::move(options.repeat)}, {}, [&](StepMention& m) {
    if (!options.rows.empty()) m.row_index = parse_mention(options.rows);
    m.tensor = parse_mention(tensor);
  });
}

TileValue ProgramBuilder::load_per_row(std::string_view tensor, Where where) {
  return make(where, steps::LoadPerRow{}, {}, tensor);
}
TileValue ProgramBuilder::load_per_column(std::string_view tensor, Where where) {
  return make(where, steps::LoadPerColumn{}, {}, tensor);
}
TileValue ProgramBuilder::load_per_column(std::string_view tensor, const Dim& repeat, Where where) {
  return make(where, steps::LoadPerColumn{.repeat = repeat}, {}, tensor);
}
TileValue ProgramBuilder::load_scalar(std::string_view tensor, Where where) {
  return make(where, steps::LoadScalar{}, {}, tensor);
}
TileValue ProgramBuilder::constant(double number, Where where) {
  return make(where, steps::Constant{number}, {});
}
TileValue ProgramBuilder::column_index(std::optional<Dim> columns, Where where) {
  return make(where, steps::ColumnIndex{}, {}, [&](StepMention& m) { m.columns = columns; });
}

TileValue ProgramBuilder::size(const Dim& size, Where where) {
  return make(where, steps::Size{size}, {});
}

TileValue ProgramBuilder::elementwise(Elementwise op, std::initializer_list<Operand> operands) {
  const Where where = operands.begin()->where;
  program::Assembler& assembler = state_->assembler;
  return guarded(where, [&] {
    std::vector<int> steps;
    for (const Operand& operand : operands) {
      if (operand.builder != nullptr && operand.builder != this)
        throw Error("a value belongs to another ProgramBuilder");
      steps.push_back(operand.builder == nullptr ? assembler.constant(operand.number)
                                                 : operand.step);
    }
    return assembler.elementwise(op, std::move(steps));
  });
}

std::pair<TileValue, TileValue> ProgramBuilder::split_pairs(TileValue value, const Pairs& pairs,
                                                            Where where) {
  const auto member = [&](int which) {
    return make(where, steps::SplitPair{.which = which}, {value},
                [&](StepMention& m) { m.group = pairs.group; });
  };
  const TileValue first = member(0);
  return {first, member(1)};
}
TileValue ProgramBuilder::merge_pairs(TileValue first, TileValue second, const Pairs& pairs,
                                      Where where) {
  return make(where, steps::MergePairs{}, {first, second},
              [&](StepMention& m) { m.group = pairs.group; });
}
TileValue ProgramBuilder::as_stored(TileValue value, DType dtype, Where where) {
  return make(where, steps::AsStored{dtype}, {value});
}
TileValue ProgramBuilder::reduce_group(TileValue value, Dim group, Where where) {
  return make(where, steps::ReduceGroup{std::move(group)}, {value});
}
TileValue ProgramBuilder::abs_max_group(TileValue value, Dim group, Where where) {
  return make(where, steps::GroupAbsMax{std::move(group)}, {value});
}

TileValue ProgramBuilder::repeat_group(TileValue value, Dim group, Where where) {
  return make(where, steps::RepeatGroup{std::move(group)}, {value});
}
TileValue ProgramBuilder::select_column(TileValue value, TileValue index, Where where) {
  return make(where, steps::SelectColumn{}, {value, index});
}

TileValue ProgramBuilder::combine_rows(std::string_view tensor, PartialKind kind, int lane,
                                       Where where) {
  return combine(TensorKind::row_partial, tensor, kind, lane, where);
}
TileValue ProgramBuilder::combine_columns(std::string_view tensor, PartialKind kind, int lane,
                                          Where where) {
  return combine(TensorKind::column_partial, tensor, kind, lane, where);
}
TileValue ProgramBuilder::combine(TensorKind of, std::string_view tensor, PartialKind kind,
                                  int lane, Where where) {
  return make(where, steps::Combine{.partial = kind, .lane = lane}, {}, [&](StepMention& m) {
    m.tensor = parse_mention(tensor);
    m.partial = of;
  });
}
TileValue ProgramBuilder::reduce_vector(TileValue value, Where where) {
  return make(where, steps::ReduceVector{}, {value});
}
TileValue ProgramBuilder::transpose_vector(TileValue value, Where where) {
  return make(where, steps::TransposeVector{}, {value});
}

void ProgramBuilder::constants(std::initializer_list<std::string_view> tensors) {
  state_->assembler.mark_constants({tensors.begin(), tensors.end()});
}

void ProgramBuilder::store(std::string_view tensor, TileValue value, Where where) {
  make(where, steps::StoreTile{}, {value}, tensor);
}
void ProgramBuilder::store_transposed(std::string_view tensor, TileValue value, Where where) {
  make(where, steps::StoreTransposed{}, {value}, tensor);
}
void ProgramBuilder::abs_max_into(std::string_view scalar, TileValue value, Where where) {
  make(where, steps::AbsMaxInto{}, {value}, scalar);
}
void ProgramBuilder::row_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                 Where where) {
  make(where, steps::RowPartial{.partial = kind}, {value}, tensor);
}
void ProgramBuilder::column_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                    Where where) {
  make(where, steps::ColumnPartial{.partial = kind}, {value}, tensor);
}

Program ProgramBuilder::build() {
  try {
    return state_->assembler.finish(/*reorder=*/true);
  } catch (const program::Problems& problems) {
    const program::Problem& first = problems.all.front();
    const std::string message =
        "program '" + state_->name + "': " + program::with_places(first.message, [&](int step) {
          return "line " + std::to_string(state_->places[step].line());
        });
    if (first.step < 0) throw Error(message);
    throw error_at(state_->places[first.step], message);
  }
}

namespace {

TileValue apply(Elementwise op, std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.builder != nullptr) return operand.builder->elementwise(op, operands);
  }
  throw InternalError("an operation of numbers only");
}

}  // namespace

TileValue operator+(const Operand& a, const Operand& b) { return apply(Elementwise::add, {a, b}); }
TileValue operator-(const Operand& a, const Operand& b) { return apply(Elementwise::sub, {a, b}); }
TileValue operator*(const Operand& a, const Operand& b) { return apply(Elementwise::mul, {a, b}); }
TileValue operator/(const Operand& a, const Operand& b) { return apply(Elementwise::div, {a, b}); }
TileValue operator-(const Operand& a) { return apply(Elementwise::neg, {a}); }
TileValue max(const Operand& a, const Operand& b) { return apply(Elementwise::max, {a, b}); }
TileValue min(const Operand& a, const Operand& b) { return apply(Elementwise::min, {a, b}); }
TileValue equal(const Operand& a, const Operand& b) { return apply(Elementwise::equal, {a, b}); }
TileValue less(const Operand& a, const Operand& b) { return apply(Elementwise::less, {a, b}); }
TileValue less_equal(const Operand& a, const Operand& b) {
  return apply(Elementwise::less_equal, {a, b});
}
TileValue not_equal(const Operand& a, const Operand& b) {
  return apply(Elementwise::not_equal, {a, b});
}
TileValue operator<(const Operand& a, const Operand& b) { return less(a, b); }
TileValue operator<=(const Operand& a, const Operand& b) { return less_equal(a, b); }
TileValue operator>(const Operand& a, const Operand& b) { return less(b, a); }
TileValue operator>=(const Operand& a, const Operand& b) { return less_equal(b, a); }
TileValue select(const Operand& condition, const Operand& a, const Operand& b) {
  return apply(Elementwise::select, {condition, a, b});
}
TileValue exp(const Operand& a) { return apply(Elementwise::exp, {a}); }
TileValue log(const Operand& a) { return apply(Elementwise::log, {a}); }
TileValue rsqrt(const Operand& a) { return apply(Elementwise::rsqrt, {a}); }
TileValue sqrt(const Operand& a) { return apply(Elementwise::sqrt, {a}); }
TileValue recip(const Operand& a) { return apply(Elementwise::recip, {a}); }
TileValue sigmoid(const Operand& a) { return apply(Elementwise::sigmoid, {a}); }
TileValue tanh(const Operand& a) { return apply(Elementwise::tanh, {a}); }
TileValue erf(const Operand& a) { return apply(Elementwise::erf, {a}); }
TileValue silu(const Operand& a) { return apply(Elementwise::silu, {a}); }
TileValue gelu(const Operand& a) { return apply(Elementwise::gelu, {a}); }
TileValue gelu_tanh(const Operand& a) { return apply(Elementwise::gelu_tanh, {a}); }
TileValue relu(const Operand& a) { return apply(Elementwise::relu, {a}); }
TileValue abs(const Operand& a) { return apply(Elementwise::abs, {a}); }
TileValue random(const Operand& seed, const Operand& row, const Operand& column) {
  return apply(Elementwise::random, {seed, row, column});
}
TileValue stochastic_bf16(const Operand& a, const Operand& u) {
  return apply(Elementwise::stochastic_bf16, {a, u});
}

}  // namespace coda
