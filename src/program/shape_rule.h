// SPDX-License-Identifier: Apache-2.0
// Shape rules: what the rule of a kind sees of its step. The same rule serves the assembler, which
// has to find sizes that a text leaves out, and the verifier, where all sizes are known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/problem.h"

namespace coda::program {

// Sizes of a tensor or a value, as nodes of a SizeSet.
struct Sizes {
  int rows = -1;
  int cols = -1;
};

// A union-find of sizes, known and unknown.
class SizeSet {
 public:
  int known(const Dim& size);
  int unknown();
  Sizes known(const Shape& shape) { return {known(shape.rows), known(shape.cols)}; }
  const std::optional<Dim>& at(int node) const { return nodes_[root(node)].size; }
  bool is_unit(int node) const { return at(node) && at(node)->is(1); }
  // Returns false if the sizes are different.
  bool unify(int a, int b);
  bool unify(Sizes a, Sizes b) { return unify(a.rows, b.rows) && unify(a.cols, b.cols); }
  // "[M, ?]"
  std::string text(Sizes sizes) const;

 private:
  struct Node {
    int parent;
    std::optional<Dim> size;
    int members = 1;  // of a root: in its set
  };
  int root(int node) const;
  std::vector<Node> nodes_;
};

struct ShapeRule {
  const Program& program;
  const Step& step;
  SizeSet& sizes;
  const std::vector<Sizes>& tensors;
  const std::vector<Sizes>& values;  // of earlier steps
  const Shape* given = nullptr;      // in the verifier: the shape of the step
  int at = -1;                       // in the verifier: the number of the step
  std::optional<Dim> columns{};      // in the assembler: the columns given for a column index

  [[noreturn]] void wrong(std::string message) const { fail(at, std::move(message)); }
  Sizes operand(size_t index) const { return values[step.operands[index]]; }
  Sizes tensor() const { return tensors[step.tensor()]; }
  const std::string& name() const { return program.tensors[step.tensor()].name; }
  // The number of columns of the first operand, which must be known.
  Dim columns_of_operand() const;
  // "[M, N] and [M, 1]"
  std::string operand_texts() const;

  // The result; if the step has another shape, throws with message(expected, given).
  Sizes is(Sizes result, const auto& message) const {
    if (given != nullptr &&
        (*sizes.at(result.rows) != given->rows || *sizes.at(result.cols) != given->cols)) {
      wrong(message(sizes.text(result), given->text()));
    }
    return result;
  }
  // With the message "WHAT [M, N], not [M, 1]".
  Sizes is_checked(Sizes result, const auto& what) const {
    return is(result, [&](const auto& expected, const auto& given) {
      return what() + expected + ", not " + given;
    });
  }
  // The first operand's sizes.
  Sizes as_operand() const;
};

// The columns of a load that repeats the stored columns.
int repeated_columns(const ShapeRule& rule);

// Further checks for a step whose shape is right.
struct StepCheck {
  const Program& program;
  const Step& step;
  int at;

  void check(bool condition, const auto& message) const { program::check(condition, at, message); }
  const Step& operand(size_t index) const { return program.steps[step.operands[index]]; }
  const TensorDecl& tensor() const { return program.tensors[step.tensor()]; }
  // Its tensor must hold partials of its kind along rows or columns.
  void check_partial_tensor(TensorKind kind) const;
};

// Checks how often a load repeats the stored columns.
void check_repeat(const StepCheck& c);

}  // namespace coda::program
