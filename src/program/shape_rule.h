// SPDX-License-Identifier: Apache-2.0
// Shapes of steps: what a kind's rule sees of its step. One rule serves the assembler, where sizes
// that a text leaves out are still to be found, and the verifier, where all are known.
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

// Sizes that are known or not yet, and which of them are one: a union-find.
class SizeSet {
 public:
  int known(const Dim& size);
  int unknown();
  Sizes known(const Shape& shape) { return {known(shape.rows), known(shape.cols)}; }
  const std::optional<Dim>& at(int node) const { return nodes_[root(node)].size; }
  bool is_unit(int node) const { return at(node) && at(node)->is(1); }
  // False if they are two.
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
  const std::vector<Sizes>& values;  // of the steps before
  const Shape* given = nullptr;      // the shape that the step has, in the verifier
  int at = -1;                       // the step's number there
  std::optional<Dim> columns{};      // in the assembler: those that a column index is given

  [[noreturn]] void wrong(std::string message) const { fail(at, std::move(message)); }
  Sizes operand(size_t index) const { return values[step.operands[index]]; }
  Sizes tensor() const { return tensors[step.tensor()]; }
  const std::string& name() const { return program.tensors[step.tensor()].name; }
  // Columns of the first operand, which must be known.
  Dim columns_of_operand() const;
  // "[M, N] and [M, 1]"
  std::string operand_texts() const;

  // The result; where the step has another shape, the message (expected, given) says so.
  Sizes is(Sizes result, const auto& message) const {
    if (given != nullptr &&
        (*sizes.at(result.rows) != given->rows || *sizes.at(result.cols) != given->cols)) {
      wrong(message(sizes.text(result), given->text()));
    }
    return result;
  }
  // With a message "WHAT [M, N], not [M, 1]".
  Sizes is_said(Sizes result, const auto& what) const {
    return is(result, [&](const auto& expected, const auto& given) {
      return what() + expected + ", not " + given;
    });
  }
  // The first operand's.
  Sizes as_operand() const;
};

// Of a load that repeats the stored columns.
int repeated_columns(const ShapeRule& rule);

// A step whose shape is right, for what else its kind asks.
struct StepCheck {
  const Program& program;
  const Step& step;
  int at;

  void check(bool condition, const auto& message) const { program::check(condition, at, message); }
  const Step& operand(size_t index) const { return program.steps[step.operands[index]]; }
  const TensorDecl& tensor() const { return program.tensors[step.tensor()]; }
  // Its tensor holds partials of its kind along rows or columns.
  void check_partial_tensor(TensorKind kind) const;
};

// How often a load repeats the stored columns.
void check_repeat(const StepCheck& c);

}  // namespace coda::program
