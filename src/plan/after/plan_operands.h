// SPDX-License-Identifier: Apache-2.0
// What the steps of a plan see of its tensors. An operand is a tensor as one step left it: what
// stores over it later makes another operand of the same tensor.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "coda/plan.h"

namespace coda {

struct Operand {
  std::string tensor;
  int version = -1;  // the step that last wrote its memory before it is read; -1: none did
  // The loop over row chunks that has copies of it for itself: of what the loop makes, and
  // transposed ones, which are no rows of a whole copy. -1: copies are of the whole tensor.
  int loop = -1;
  auto operator<=>(const Operand&) const = default;
};

// Steps are counted through the forward and on through the backward. The plan must outlive it.
class PlanOperands {
 public:
  explicit PlanOperands(const Plan& plan);

  int count() const { return static_cast<int>(steps_.size()); }
  const PlanStep& step(int i) const { return *steps_[static_cast<size_t>(i)]; }
  bool is_backward(int step) const { return step >= std::ssize(plan_.forward); }
  // Null where the step calls a function.
  const Program* program(int step) const;

  bool contains(const std::string& tensor) const { return tensors_.contains(tensor); }
  const PlanTensor& tensor(const std::string& name) const { return *tensors_.at(name); }
  // The tensor whose memory it is: of a view, what it views.
  const std::string& owner(const std::string& name) const;

  // As a step reads it, along its rows or along its columns.
  Operand at(const std::string& tensor, bool transposed, int step) const;
  // The operands of a segment of a product of that step's program.
  Operand first_of(const Program& program, const GemmSegment& segment, int step) const;
  Operand second_of(const Program& program, const GemmSegment& segment, int step) const;
  bool is_written_in(const Operand& operand, int loop) const;

 private:
  const Plan& plan_;
  std::vector<const PlanStep*> steps_;
  std::map<std::string, const PlanTensor*> tensors_;
  std::map<std::string, std::vector<int>> writers_;  // of an owner: steps, in order
};

}  // namespace coda
