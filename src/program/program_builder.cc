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

int ProgramBuilder::step_of(Value value, Where where) const {
  if (value.builder_ != this) throw error_at(where, "a value belongs to another ProgramBuilder");
  return value.step_;
}

// Runs an action that makes a step, or several of which the last is the value.
Value ProgramBuilder::make(Where where, auto&& action) {
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

Value ProgramBuilder::gemm(std::string_view a, std::string_view b, std::string_view layout,
                           Where where) {
  return gemm({{a, b, layout}}, where);
}

Value ProgramBuilder::gemm(std::initializer_list<Segment> segments, Where where) {
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

Value ProgramBuilder::load_tile(std::string_view tensor, Where where) {
  return load_tile(tensor, TileOptions{}, where);
}

Value ProgramBuilder::load_tile(std::string_view tensor, TileOptions options, Where where) {
  return make(where, [&](program::Assembler& assembler) {
    std::optional<TensorMention> rows;
    if (!options.rows.empty()) rows = program::parse_mention(options.rows);
    return assembler.load_tile(program::parse_mention(tensor), rows, options.repeat);
  });
}

Value ProgramBuilder::load_per_row(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_per_row, program::parse_mention(tensor));
  });
}
Value ProgramBuilder::load_per_column(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_per_column, program::parse_mention(tensor));
  });
}
Value ProgramBuilder::load_scalar(std::string_view tensor, Where where) {
  return make(where, [&](auto& a) {
    return a.load_vector(StepKind::load_scalar, program::parse_mention(tensor));
  });
}
Value ProgramBuilder::constant(double number, Where where) {
  return make(where, [&](auto& a) { return a.constant(number); });
}
Value ProgramBuilder::column_index(std::optional<Dim> columns, Where where) {
  return make(where, [&](auto& a) { return a.column_index(columns); });
}

Value ProgramBuilder::elementwise(Elementwise op, std::initializer_list<Operand> operands) {
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

std::pair<Value, Value> ProgramBuilder::split_pairs(Value value, const Pairs& pairs, Where where) {
  const int step = step_of(value, where);
  const Value first = make(where, [&](auto& a) { return a.split_pair(step, pairs.group, 0); });
  const Value second = make(where, [&](auto& a) { return a.split_pair(step, pairs.group, 1); });
  return {first, second};
}
Value ProgramBuilder::merge_pairs(Value first, Value second, const Pairs& pairs, Where where) {
  return make(where, [&](auto& a) {
    return a.merge_pairs(step_of(first, where), step_of(second, where), pairs.group);
  });
}
Value ProgramBuilder::as_stored(Value value, DType dtype, Where where) {
  return make(where, [&](auto& a) { return a.as_stored(step_of(value, where), dtype); });
}
Value ProgramBuilder::reduce_group(Value value, Dim group, Where where) {
  return make(where, [&](auto& a) { return a.reduce_group(step_of(value, where), group); });
}
Value ProgramBuilder::repeat_group(Value value, Dim group, Where where) {
  return make(where, [&](auto& a) { return a.repeat_group(step_of(value, where), group); });
}
Value ProgramBuilder::select_column(Value value, Value index, Where where) {
  return make(where, [&](auto& a) {
    return a.select_column(step_of(value, where), step_of(index, where));
  });
}

Value ProgramBuilder::combine_rows(std::string_view tensor, PartialKind kind, int lane,
                                   Where where) {
  return make(where, [&](auto& a) {
    return a.combine(TensorKind::row_partial, program::parse_mention(tensor), kind, lane);
  });
}
Value ProgramBuilder::combine_columns(std::string_view tensor, PartialKind kind, int lane,
                                      Where where) {
  return make(where, [&](auto& a) {
    return a.combine(TensorKind::column_partial, program::parse_mention(tensor), kind, lane);
  });
}
Value ProgramBuilder::reduce_vector(Value value, Where where) {
  return make(where, [&](auto& a) { return a.reduce_vector(step_of(value, where)); });
}
Value ProgramBuilder::transpose_vector(Value value, Where where) {
  return make(where, [&](auto& a) { return a.transpose_vector(step_of(value, where)); });
}

void ProgramBuilder::store(std::string_view tensor, Value value, Where where) {
  make(where,
       [&](auto& a) { return a.store(program::parse_mention(tensor), step_of(value, where)); });
}
void ProgramBuilder::row_partial(std::string_view tensor, PartialKind kind, Value value,
                                 Where where) {
  make(where, [&](auto& a) {
    return a.partial(StepKind::row_partial, program::parse_mention(tensor), kind,
                     step_of(value, where));
  });
}
void ProgramBuilder::column_partial(std::string_view tensor, PartialKind kind, Value value,
                                    Where where) {
  make(where, [&](auto& a) {
    return a.partial(StepKind::column_partial, program::parse_mention(tensor), kind,
                     step_of(value, where));
  });
}

Program ProgramBuilder::build() {
  try {
    return state_->assembler.finish(/*drop_unused_members=*/true);
  } catch (const program::Problem& problem) {
    const std::string message = "program '" + state_->name + "': " + problem.message;
    if (problem.step < 0) throw Error(message);
    throw error_at(state_->places[problem.step], message);
  }
}

namespace {

Value apply(Elementwise op, std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) {
    if (operand.builder != nullptr) return operand.builder->elementwise(op, operands);
  }
  throw InternalError("an operation of numbers only");
}

}  // namespace

Value operator+(const Operand& a, const Operand& b) { return apply(Elementwise::add, {a, b}); }
Value operator-(const Operand& a, const Operand& b) { return apply(Elementwise::sub, {a, b}); }
Value operator*(const Operand& a, const Operand& b) { return apply(Elementwise::mul, {a, b}); }
Value operator/(const Operand& a, const Operand& b) { return apply(Elementwise::div, {a, b}); }
Value operator-(const Operand& a) { return apply(Elementwise::neg, {a}); }
Value max(const Operand& a, const Operand& b) { return apply(Elementwise::max, {a, b}); }
Value min(const Operand& a, const Operand& b) { return apply(Elementwise::min, {a, b}); }
Value equal(const Operand& a, const Operand& b) { return apply(Elementwise::equal, {a, b}); }
Value less(const Operand& a, const Operand& b) { return apply(Elementwise::less, {a, b}); }
Value select(const Operand& condition, const Operand& a, const Operand& b) {
  return apply(Elementwise::select, {condition, a, b});
}
Value exp(Value a, std::source_location where) { return apply(Elementwise::exp, {{a, where}}); }
Value log(Value a, std::source_location where) { return apply(Elementwise::log, {{a, where}}); }
Value rsqrt(Value a, std::source_location where) { return apply(Elementwise::rsqrt, {{a, where}}); }
Value sqrt(Value a, std::source_location where) { return apply(Elementwise::sqrt, {{a, where}}); }
Value recip(Value a, std::source_location where) { return apply(Elementwise::recip, {{a, where}}); }
Value sigmoid(Value a, std::source_location where) {
  return apply(Elementwise::sigmoid, {{a, where}});
}
Value tanh(Value a, std::source_location where) { return apply(Elementwise::tanh, {{a, where}}); }
Value erf(Value a, std::source_location where) { return apply(Elementwise::erf, {{a, where}}); }
Value silu(Value a, std::source_location where) { return apply(Elementwise::silu, {{a, where}}); }
Value gelu(Value a, std::source_location where) { return apply(Elementwise::gelu, {{a, where}}); }
Value gelu_tanh(Value a, std::source_location where) {
  return apply(Elementwise::gelu_tanh, {{a, where}});
}

}  // namespace coda
