// SPDX-License-Identifier: Apache-2.0
// Operands: a tensor in the version that one plan step wrote. A later store makes another operand
// of the same tensor.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda {

struct Operand {
  std::string tensor;
  int version = -1;  // the step that last wrote it before it is read; -1: none
  // The loop over row blocks that has its own copies: of tensors that the loop writes, and
  // transposed copies (which are not rows of a whole copy). -1: copies of the whole tensor.
  int loop = -1;
  auto operator<=>(const Operand&) const = default;
};

// Steps are numbered through the forward and then the backward. The plan must outlive this object.
class PlanOperands {
 public:
  explicit PlanOperands(const Plan& plan);

  int count() const { return static_cast<int>(steps_.size()); }
  const PlanStep& step(int i) const { return *steps_[static_cast<size_t>(i)]; }
  bool is_backward(int step) const { return step >= std::ssize(plan_.forward); }
  // Null if the step is an opaque call.
  const Program* program(int step) const;

  bool contains(const std::string& tensor) const { return tensors_.contains(tensor); }
  const PlanTensor& tensor(const std::string& name) const { return *tensors_.at(name); }
  // The tensor that owns the memory: for a view, what it views.
  const std::string& owner(const std::string& name) const;

  // As a step reads it: along its rows, or transposed along its columns.
  Operand at(const std::string& tensor, bool transposed, int step) const;
  // The operands of a GEMM segment in that step's program.
  Operand first_of(const Program& program, const GemmSegment& segment, int step) const;
  Operand second_of(const Program& program, const GemmSegment& segment, int step) const;
  bool is_written_in(const Operand& operand, int loop) const;

 private:
  const Plan& plan_;
  std::vector<const PlanStep*> steps_;
  std::map<std::string, const PlanTensor*> tensors_;
  std::map<std::string, std::vector<int>> writers_;  // the steps that write an owner, in order
};

}  // namespace coda
