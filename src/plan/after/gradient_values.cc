// SPDX-License-Identifier: Apache-2.0
// Propagates a flag per value through the plan steps: a value is a gradient if it depends on one.
#include "plan/after/gradient_values.h"

#include <algorithm>

#include "program/step_table.h"

namespace coda {
namespace {

class Finder {
 public:
  Finder(const PlanOperands& operands, const Plan& plan, const std::set<std::string>& begins)
      : operands_(operands), begins_(begins) {
    find_given(plan);
  }

  std::set<Operand> run() {
    for (int i = 0; i < operands_.count(); ++i) {
      written_.clear();
      if (const Program* program = operands_.program(i)) {
        follow(*program);
      } else {
        follow_call(i);
      }
      for (const auto& [owner, is_one] : written_) {
        if (is_one || (!has_given_ && operands_.is_backward(i))) {
          now_.insert(owner);
          result_.insert({owner, i});
        } else {
          now_.erase(owner);
        }
      }
    }
    return std::move(result_);
  }

 private:
  // Finds inputs that seed the backward, and inputs that only the backward reads.
  void find_given(const Plan& plan) {
    std::set<std::string> early;
    for (int i = 0; i < operands_.count() && !operands_.is_backward(i); ++i)
      for (const StepTensor& t : step_tensors(operands_.step(i)))
        early.insert(operands_.owner(t.name));
    for (const PlanTensor& t : plan.tensors) {
      const bool is_input = t.role == TensorRole::input && t.view_of.empty() && !t.is_table;
      if (is_input && (t.is_upstream || !early.contains(t.decl.name))) now_.insert(t.decl.name);
    }
    for (const std::string& given : now_) result_.insert({given, -1});
    has_given_ = !now_.empty();
  }

  bool is_gradient(const std::string& tensor) const {
    return now_.contains(operands_.owner(tensor));
  }
  void write(const std::string& tensor, bool is_one) {
    bool& written = written_[operands_.owner(tensor)];
    written = written || is_one;
  }

  void follow(const Program& program) {
    const bool has_product = program::has_product(program);
    std::vector<bool> is_one(program.steps.size());
    for (size_t i = 0; i < program.steps.size(); ++i) {
      const Step& s = program.steps[i];
      const std::vector<int> tensors = program::tensors_of(s);
      const auto reads_one = [&](int t) {
        return is_gradient(program.tensors[static_cast<size_t>(t)].name);
      };
      is_one[i] =
          std::any_of(s.operands.begin(), s.operands.end(),
                      [&](int operand) { return is_one[static_cast<size_t>(operand)]; }) ||
          (!program::is_effect(s) && std::any_of(tensors.begin(), tensors.end(), reads_one));
      if (!program::is_effect(s)) continue;
      const std::string& name = program.tensors[static_cast<size_t>(s.tensor())].name;
      write(name, is_one[i] || (!has_product && begins_.contains(name)));
    }
  }

  void follow_call(int i) {
    const std::vector<StepTensor> tensors = step_tensors(operands_.step(i));
    const bool is_one = std::any_of(tensors.begin(), tensors.end(), [&](const StepTensor& t) {
      return t.read && is_gradient(t.name);
    });
    for (const StepTensor& t : tensors)
      if (t.written) write(t.name, is_one);
  }

  const PlanOperands& operands_;
  const std::set<std::string>& begins_;
  bool has_given_ = false;
  std::set<std::string> now_;            // owners whose memory currently holds a gradient
  std::map<std::string, bool> written_;  // by the current step
  std::set<Operand> result_;
};

}  // namespace

std::set<Operand> find_gradients(const PlanOperands& operands, const Plan& plan,
                                 const std::set<std::string>& begins) {
  return Finder(operands, plan, begins).run();
}

}  // namespace coda
