// SPDX-License-Identifier: Apache-2.0
// Steps whose elements depend only on the operands' elements at the same position.
#include "program/evaluation.h"
#include "program/lifting.h"
#include "program/shape_rule.h"
#include "program/step_table.h"

namespace coda::program {
namespace {

Sizes shape_of_elementwise(const ShapeRule& r) {
  Sizes result = r.sizes.known(Shape{});
  const auto broadcast = [&](int& size, int operand) {
    if (r.sizes.is_unit(operand)) return true;
    if (!r.sizes.is_unit(size)) return r.sizes.unify(size, operand);
    size = operand;
    return true;
  };
  for (size_t o = 0; o < r.step.operands.size(); ++o) {
    if (!broadcast(result.rows, r.operand(o).rows) || !broadcast(result.cols, r.operand(o).cols)) {
      r.wrong("shapes " + r.operand_texts() + " do not broadcast in " +
              std::string(info(r.step.op()).name));
    }
  }
  return r.is_checked(result, [] { return std::string("its operands broadcast to "); });
}

// Operands broadcast along dimensions that are 1 in the program, not along sizes that happen to be
// 1 in this run.
StepValue evaluate_elementwise(const Evaluation& e) {
  const Step& s = e.step();
  return {e.size(s.shape.rows), e.size(s.shape.cols), [&](int64_t i, int64_t j) {
            double x[3] = {0, 0, 0};
            for (size_t o = 0; o < s.operands.size(); ++o) {
              const Shape& shape = e.program.steps[s.operands[o]].shape;
              x[o] = e.operand(o).at(shape.rows.is(1) ? 0 : i, shape.cols.is(1) ? 0 : j);
            }
            return info(s.op()).evaluate(x[0], x[1], x[2]);
          }};
}

Value lift_elementwise(const Lifting& l) {
  std::vector<Value> operands;
  for (size_t o = 0; o < l.step.operands.size(); ++o) operands.push_back(l.operand(o));
  return elementwise(l.step.op(), std::move(operands));
}

constexpr StepInfo kElementwiseRows[] = {
    {.kind = StepKind::elementwise,
     .name = "elementwise",
     .group = StepGroup::elementwise,
     .shape = shape_of_elementwise,
     .evaluate = evaluate_elementwise,
     .error_scale = errors_of_value,
     .lift = lift_elementwise},
    {.kind = StepKind::as_stored,
     .name = "as_stored",
     .group = StepGroup::elementwise,
     .words = {"as_stored"},
     .arguments = {Argument::value, Argument::dtype},
     .shape = [](const ShapeRule& r) { return r.as_operand(); },
     .check =
         [](const StepCheck& c) {
           c.check(c.step.dtype() != DType::i32,
                   [] { return std::string("values are not stored as i32"); });
         },
     .evaluate = [](const Evaluation& e) { return e.stored(e.operand(0), e.step().dtype()); },
     .lift = [](const Lifting& l) { return l.operand(0); }},
};

}  // namespace

std::span<const StepInfo> elementwise_steps() { return kElementwiseRows; }

}  // namespace coda::program
