// SPDX-License-Identifier: Apache-2.0
// The builder: each call makes a step through the assembler and remembers its line of C++, for
// errors found later.
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

void reduce(StepMention& m, std::string_view tensor, PartialKind kind) {
  m.tensor = parse_mention(tensor);
  m.step.partial = kind;
}

void combine(StepMention& m, TensorKind of, std::string_view tensor, PartialKind kind, int lane) {
  reduce(m, tensor, kind);
  m.partial = of;
  m.step.lane = lane;
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

// A step of these operands, with what `complete` adds to it.
TileValue ProgramBuilder::make(Where where, StepKind kind, const std::vector<TileValue>& operands,
                               auto&& complete) {
  return guarded(where, [&] {
    StepMention step{.step = {.kind = kind}};
    for (const TileValue& operand : operands) step.step.operands.push_back(step_of(operand));
    complete(step);
    return state_->assembler.make(step);
  });
}

TileValue ProgramBuilder::make(Where where, StepKind kind, const std::vector<TileValue>& operands) {
  return make(where, kind, operands, [](StepMention&) {});
}

TileValue ProgramBuilder::read(Where where, StepKind kind, std::string_view tensor) {
  return make(where, kind, {}, [&](StepMention& m) { m.tensor = parse_mention(tensor); });
}

TileValue ProgramBuilder::gemm(std::string_view a, std::string_view b, std::string_view layout,
                               Where where) {
  return gemm({{a, b, layout}}, where);
}

TileValue ProgramBuilder::gemm(std::initializer_list<Segment> segments, Where where) {
  return make(where, StepKind::gemm, {}, [&](StepMention& m) {
    for (const Segment& segment : segments) {
      m.segments.push_back({parse_mention(segment.a), parse_mention(segment.b), std::nullopt});
      if (!segment.layout.empty()) m.segments.back().layout = std::string(segment.layout);
    }
    SegmentMention& first = m.segments.front();
    if (segments.size() == 1 && state_->assembler.step_count() == 0 && first.a.dims.empty() &&
        first.b.dims.empty()) {
      first.a.dims = {"M", "K"};
      first.b.dims = {"N", "K"};
    }
  });
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, Where where) {
  return load_tile(tensor, TileOptions{}, where);
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, TileOptions options, Where where) {
  return make(where, StepKind::load_tile, {}, [&](StepMention& m) {
    if (!options.rows.empty()) m.row_index = parse_mention(options.rows);
    m.tensor = parse_mention(tensor);
    m.step.repeat = options.repeat;
  });
}

TileValue ProgramBuilder::load_per_row(std::string_view tensor, Where where) {
  return read(where, StepKind::load_per_row, tensor);
}
TileValue ProgramBuilder::load_per_column(std::string_view tensor, Where where) {
  return read(where, StepKind::load_per_column, tensor);
}
TileValue ProgramBuilder::load_scalar(std::string_view tensor, Where where) {
  return read(where, StepKind::load_scalar, tensor);
}
TileValue ProgramBuilder::constant(double number, Where where) {
  return make(where, StepKind::constant, {}, [&](StepMention& m) { m.step.number = number; });
}
TileValue ProgramBuilder::column_index(std::optional<Dim> columns, Where where) {
  return make(where, StepKind::column_index, {}, [&](StepMention& m) { m.columns = columns; });
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
    return make(where, StepKind::split_pair, {value}, [&](StepMention& m) {
      m.group = pairs.group;
      m.step.which = which;
    });
  };
  const TileValue first = member(0);
  return {first, member(1)};
}
TileValue ProgramBuilder::merge_pairs(TileValue first, TileValue second, const Pairs& pairs,
                                      Where where) {
  return make(where, StepKind::merge_pairs, {first, second},
              [&](StepMention& m) { m.group = pairs.group; });
}
TileValue ProgramBuilder::as_stored(TileValue value, DType dtype, Where where) {
  return make(where, StepKind::as_stored, {value}, [&](StepMention& m) { m.step.dtype = dtype; });
}
TileValue ProgramBuilder::reduce_group(TileValue value, Dim group, Where where) {
  return make(where, StepKind::reduce_group, {value},
              [&](StepMention& m) { m.step.group = group; });
}
TileValue ProgramBuilder::repeat_group(TileValue value, Dim group, Where where) {
  return make(where, StepKind::repeat_group, {value},
              [&](StepMention& m) { m.step.group = group; });
}
TileValue ProgramBuilder::select_column(TileValue value, TileValue index, Where where) {
  return make(where, StepKind::select_column, {value, index});
}

TileValue ProgramBuilder::combine_rows(std::string_view tensor, PartialKind kind, int lane,
                                       Where where) {
  return make(where, StepKind::combine, {},
              [&](StepMention& m) { combine(m, TensorKind::row_partial, tensor, kind, lane); });
}
TileValue ProgramBuilder::combine_columns(std::string_view tensor, PartialKind kind, int lane,
                                          Where where) {
  return make(where, StepKind::combine, {},
              [&](StepMention& m) { combine(m, TensorKind::column_partial, tensor, kind, lane); });
}
TileValue ProgramBuilder::reduce_vector(TileValue value, Where where) {
  return make(where, StepKind::reduce_vector, {value});
}
TileValue ProgramBuilder::transpose_vector(TileValue value, Where where) {
  return make(where, StepKind::transpose_vector, {value});
}

void ProgramBuilder::store(std::string_view tensor, TileValue value, Where where) {
  make(where, StepKind::store_tile, {value},
       [&](StepMention& m) { m.tensor = parse_mention(tensor); });
}
void ProgramBuilder::row_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                 Where where) {
  make(where, StepKind::row_partial, {value}, [&](StepMention& m) { reduce(m, tensor, kind); });
}
void ProgramBuilder::column_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                    Where where) {
  make(where, StepKind::column_partial, {value}, [&](StepMention& m) { reduce(m, tensor, kind); });
}

Program ProgramBuilder::build() {
  try {
    return state_->assembler.finish(/*reorder=*/true);
  } catch (const program::Problem& problem) {
    const std::string message = "program '" + state_->name + "': " + problem.message;
    if (problem.step < 0) throw Error(message);
    throw error_at(state_->places[problem.step], message);
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
TileValue select(const Operand& condition, const Operand& a, const Operand& b) {
  return apply(Elementwise::select, {condition, a, b});
}
TileValue exp(TileValue a, std::source_location where) {
  return apply(Elementwise::exp, {{a, where}});
}
TileValue log(TileValue a, std::source_location where) {
  return apply(Elementwise::log, {{a, where}});
}
TileValue rsqrt(TileValue a, std::source_location where) {
  return apply(Elementwise::rsqrt, {{a, where}});
}
TileValue sqrt(TileValue a, std::source_location where) {
  return apply(Elementwise::sqrt, {{a, where}});
}
TileValue recip(TileValue a, std::source_location where) {
  return apply(Elementwise::recip, {{a, where}});
}
TileValue sigmoid(TileValue a, std::source_location where) {
  return apply(Elementwise::sigmoid, {{a, where}});
}
TileValue tanh(TileValue a, std::source_location where) {
  return apply(Elementwise::tanh, {{a, where}});
}
TileValue erf(TileValue a, std::source_location where) {
  return apply(Elementwise::erf, {{a, where}});
}
TileValue silu(TileValue a, std::source_location where) {
  return apply(Elementwise::silu, {{a, where}});
}
TileValue gelu(TileValue a, std::source_location where) {
  return apply(Elementwise::gelu, {{a, where}});
}
TileValue gelu_tanh(TileValue a, std::source_location where) {
  return apply(Elementwise::gelu_tanh, {{a, where}});
}

}  // namespace coda
