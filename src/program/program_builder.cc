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

using program::SegmentMention;
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

int ProgramBuilder::step_of(TileValue value, Where where) const {
  if (value.builder_ != this) throw error_at(where, "a value belongs to another ProgramBuilder");
  return value.step_;
}

// Runs an action that makes a step, or several of which the last is the value.
TileValue ProgramBuilder::make(Where where, auto&& action) {
  try {
    const int step = action(state_->assembler);
    state_->places.resize(state_->assembler.step_count(), where);
    return {this, step};
  } catch (const program::Problem& problem) {
    throw error_at(where, problem.message);
  } catch (const Error& error) {
    throw error_at(where, error.what());
  }
}

TileValue ProgramBuilder::gemm(std::string_view a, std::string_view b, std::string_view layout,
                               Where where) {
  return gemm({{a, b, layout}}, where);
}

TileValue ProgramBuilder::gemm(std::initializer_list<Segment> segments, Where where) {
  return make(where, [&](program::Assembler& assembler) {
    std::vector<SegmentMention> mentions;
    for (const Segment& segment : segments) {
      SegmentMention m{program::parse_mention(segment.a), program::parse_mention(segment.b),
                       std::nullopt};
      if (!segment.layout.empty()) m.layout = std::string(segment.layout);
      mentions.push_back(std::move(m));
    }
    if (mentions.size() == 1 && assembler.step_count() == 0 && mentions[0].a.dims.empty() &&
        mentions[0].b.dims.empty()) {
      mentions[0].a.dims = {"M", "K"};
      mentions[0].b.dims = {"N", "K"};
    }
    return assembler.gemm(mentions);
  });
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, Where where) {
  return load_tile(tensor, TileOptions{}, where);
}

TileValue ProgramBuilder::load_tile(std::string_view tensor, TileOptions options, Where where) {
  return make(where, [&](program::Assembler& assembler) {
    std::optional<TensorMention> rows;
    if (!options.rows.empty()) rows = program::parse_mention(options.rows);
    return assembler.load_tile(program::parse_mention(tensor), rows, options.repeat);
  });
}

TileValue ProgramBuilder::load_per_row(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_per_row, program::parse_mention(tensor));
  });
}
TileValue ProgramBuilder::load_per_column(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_per_column, program::parse_mention(tensor));
  });
}
TileValue ProgramBuilder::load_scalar(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_scalar, program::parse_mention(tensor));
  });
}
TileValue ProgramBuilder::constant(double number, Where where) {
  return make(where, [&](auto& a) { return a.constant(number); });
}
TileValue ProgramBuilder::column_index(std::optional<Dim> columns, Where where) {
  return make(where, [&](auto& a) { return a.column_index(columns); });
}

TileValue ProgramBuilder::elementwise(Elementwise op, std::initializer_list<Operand> operands) {
  const Where where = operands.begin()->where;
  return make(where, [&](program::Assembler& assembler) {
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
  const int step = step_of(value, where);
  const TileValue first = make(where, [&](auto& a) { return a.split_pair(step, pairs.group, 0); });
  const TileValue second = make(where, [&](auto& a) { return a.split_pair(step, pairs.group, 1); });
  return {first, second};
}
TileValue ProgramBuilder::merge_pairs(TileValue first, TileValue second, const Pairs& pairs,
                                      Where where) {
  return make(where, [&](auto& a) {
    return a.merge_pairs(step_of(first, where), step_of(second, where), pairs.group);
  });
}
TileValue ProgramBuilder::as_stored(TileValue value, DType dtype, Where where) {
  return make(where, [&](auto& a) { return a.as_stored(step_of(value, where), dtype); });
}
TileValue ProgramBuilder::reduce_group(TileValue value, Dim group, Where where) {
  return make(where, [&](auto& a) { return a.reduce_group(step_of(value, where), group); });
}
TileValue ProgramBuilder::repeat_group(TileValue value, Dim group, Where where) {
  return make(where, [&](auto& a) { return a.repeat_group(step_of(value, where), group); });
}
TileValue ProgramBuilder::select_column(TileValue value, TileValue index, Where where) {
  return make(where, [&](auto& a) {
    return a.select_column(step_of(value, where), step_of(index, where));
  });
}

TileValue ProgramBuilder::combine_rows(std::string_view tensor, PartialKind kind, int lane,
                                       Where where) {
  return make(where, [&](auto& a) {
    return a.combine(TensorKind::row_partial, program::parse_mention(tensor), kind, lane);
  });
}
TileValue ProgramBuilder::combine_columns(std::string_view tensor, PartialKind kind, int lane,
                                          Where where) {
  return make(where, [&](auto& a) {
    return a.combine(TensorKind::column_partial, program::parse_mention(tensor), kind, lane);
  });
}
TileValue ProgramBuilder::reduce_vector(TileValue value, Where where) {
  return make(where, [&](auto& a) { return a.reduce_vector(step_of(value, where)); });
}
TileValue ProgramBuilder::transpose_vector(TileValue value, Where where) {
  return make(where, [&](auto& a) { return a.transpose_vector(step_of(value, where)); });
}

void ProgramBuilder::store(std::string_view tensor, TileValue value, Where where) {
  make(where,
       [&](auto& a) { return a.store(program::parse_mention(tensor), step_of(value, where)); });
}
void ProgramBuilder::row_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                 Where where) {
  make(where, [&](auto& a) {
    return a.partial(StepKind::row_partial, program::parse_mention(tensor), kind,
                     step_of(value, where));
  });
}
void ProgramBuilder::column_partial(std::string_view tensor, PartialKind kind, TileValue value,
                                    Where where) {
  make(where, [&](auto& a) {
    return a.partial(StepKind::column_partial, program::parse_mention(tensor), kind,
                     step_of(value, where));
  });
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
