// SPDX-License-Identifier: Apache-2.0
// Makes Programs step by step and infers the shapes that text and builder calls leave out. What the
// parser and the ProgramBuilder share. Steps get their number when they are made, tensors when a
// step first names them. What is wrong is thrown as a Problem at the call that causes it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/shape_rule.h"

namespace coda::program {

// A tensor as a call names it: the shape may be left out after its first mention, or where a value
// has it. One dimension is a vector, per row or per column as its use says.
struct TensorMention {
  std::string name;
  std::vector<Dim> dims;  // 0, 1 or 2
  std::optional<DType> dtype;
};

// Reads "x", "x[M, K]", "x[M, K]:bf16". Throws Error.
TensorMention parse_mention(std::string_view text);

// An operand of a product, in text  x  or  scaled(x, scales).
struct OperandMention {
  TensorMention tensor;
  std::optional<TensorMention> scales{};
};
OperandMention parse_operand(std::string_view text);

struct SegmentMention {
  OperandMention a;
  OperandMention b;
  std::optional<std::string>
      layout;  // "nn", "nt", "tn", "tt": t where the operand is stored transposed
};

// Which columns are pairs: within groups of a size, or, if none is given, the two halves of the
// row.
using PairGroup = std::optional<Dim>;

// A step as a text or a call names it: without its shape, and with what may be left out.
struct StepMention {
  Step step;  // kind, operands, fields; the tensors' indices come from the mentions
  std::vector<SegmentMention> segments{};
  std::optional<TensorMention> tensor{};
  std::optional<TensorMention> row_index{};
  TensorKind partial = TensorKind::dense;  // of combine: what it combines
  PairGroup group{};                       // of pairs
  std::optional<Dim> columns{};            // of a column index
};

class Assembler {
 public:
  explicit Assembler(std::string name) { program_.name = std::move(name); }

  void order_tensors(const std::vector<std::string>& names);
  // Steps name them before or behind this.
  void mark_constants(const std::vector<std::string>& names);

  // Makes a step and gives its number. A store is one of a tile or of a vector as its operand is.
  int make(StepMention mention);
  int constant(double number);
  int elementwise(Elementwise op, std::vector<int> operands);

  // Whether a step has named the tensor.
  bool knows(std::string_view tensor) const;
  int step_count() const { return static_cast<int>(program_.steps.size()); }

  // Resolves all sizes and verifies. With `reorder`, steps stand where their first use needs them,
  // operands from left to right: what C++ leaves to the compiler does not show in the program, and
  // members of pairs that nothing uses go. Throws Problems, which name steps by their number before
  // that.
  Program finish(bool reorder = false);

 private:
  // The tensor's index, made or checked against what is known of it; `sizes` are what the use
  // implies.
  int mention(const TensorMention& tensor, Sizes sizes, TensorKind kind = TensorKind::dense,
              int lanes = 1);
  Sizes mentioned_sizes(const TensorMention& tensor, bool per_row, bool per_column);
  void need_sizes(const TensorMention& tensor, int index, const char* example) const;
  int operand(const TensorMention& tensor, const char* example);
  GemmSegment segment(const SegmentMention& mention);
  void name_tensors(StepMention& mention);
  int name_target(const StepMention& mention);
  std::vector<int> order_of_use() const;
  std::vector<Problem> resolve_steps(const std::vector<int>& order, Program& program) const;
  std::vector<Problem> resolve_tensors(Program& program) const;

  Program program_;
  SizeSet sizes_;
  std::vector<Sizes> step_sizes_;
  std::vector<char> on_tile_;
  std::vector<Sizes> tensor_sizes_;
  std::vector<std::optional<DType>> dtypes_;
  std::vector<char> mentioned_;
  std::map<std::string, int, std::less<>> tensor_index_;
  std::set<std::string, std::less<>> constants_;
};

}  // namespace coda::program
