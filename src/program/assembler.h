// SPDX-License-Identifier: Apache-2.0
// Constructs Programs step by step and infers the shapes that text and builder calls leave out;
// shared by the parser and the ProgramBuilder. A step gets its number when it is made, a tensor
// when a step first names it. An error is thrown as a Problem by the call that causes it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/shape_rule.h"

namespace coda::program {

// A tensor as a call names it. The shape may be omitted after the first mention, or if a value
// determines it. A single dimension is a vector, per row or per column depending on the use.
struct TensorMention {
  std::string name;
  std::vector<Dim> dims;  // 0, 1 or 2
  std::optional<DType> dtype;
};

// Reads "x", "x[M, K]", "x[M, K]:bf16". Throws Error.
TensorMention parse_mention(std::string_view text);

// An operand of a GEMM; in text  x  or  scaled(x, scales).
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

// Which columns form pairs: within groups of this size, or, if empty, the two halves of the row.
using PairGroup = std::optional<Dim>;

// A step as text or a call names it: without a shape, and with optional parts left out.
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
  // The tensors may be named before or after this call.
  void mark_constants(const std::vector<std::string>& names);

  // Makes a step and returns its number. Whether a store is of a tile or a vector depends on its
  // operand.
  int make(StepMention mention);
  int constant(double number);
  int elementwise(Elementwise op, std::vector<int> operands);

  // Whether a step has named the tensor.
  bool knows(std::string_view tensor) const;
  int step_count() const { return static_cast<int>(program_.steps.size()); }

  // Resolves all sizes and verifies. With `reorder`, steps are ordered by their first uses,
  // operands from left to right, so that C++'s unspecified order of evaluation does not affect the
  // program; unused members of pairs are removed. Throws Problems, which use the numbers of steps
  // before reordering.
  Program finish(bool reorder = false);

 private:
  // The tensor's index; makes the tensor or checks it against what is known. `sizes`: implied by
  // the use.
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
