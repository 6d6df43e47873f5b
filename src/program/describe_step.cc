// SPDX-License-Identifier: Apache-2.0
// A step as one line, for messages: unlike the printer it works on steps that are not well formed.
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {

std::string describe_step(const Program& program, int index) {
  const Step& s = program.steps[index];
  const auto tensor_name = [&](int t) {
    return t >= 0 && t < static_cast<int>(program.tensors.size())
               ? quoted_name(program.tensors[t].name)
               : "tensor " + std::to_string(t);
  };
  std::string arguments;
  const auto add = [&](const std::string& argument) {
    arguments += (arguments.empty() ? "" : ", ") + argument;
  };
  for (const GemmSegment& segment : s.segments()) {
    add(tensor_name(segment.a) + (segment.transpose_a ? "'" : ""));
    add(tensor_name(segment.b) + (segment.transpose_b ? "'" : ""));
  }
  if (s.tensor() != -1) add(tensor_name(s.tensor()));
  if (is_constant(s)) add(std::to_string(s.number()));
  for (int operand : s.operands) add("v" + std::to_string(operand));
  const bool known_op = is_elementwise(s) && static_cast<int>(s.op()) < kElementwiseCount;
  const std::string_view name = known_op ? info(s.op()).name : name_of(s.kind());
  return (is_effect(s) ? "" : "v" + std::to_string(index) + " = ") + std::string(name) + "(" +
         arguments + ")";
}

}  // namespace coda::program
