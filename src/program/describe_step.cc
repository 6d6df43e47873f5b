// SPDX-License-Identifier: Apache-2.0
// Prints single steps for messages. Unlike the printer, it also works on invalid steps.
#include <algorithm>
#include <cstdlib>

#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr char kMark = '\x01';  // never part of a name (is_name)

}  // namespace

std::string place_of_step(int step) { return kMark + std::to_string(step) + kMark; }

std::string with_places(const std::string& message,
                        const std::function<std::string(int step)>& place) {
  std::string result;
  size_t at = 0;
  while (true) {
    const size_t mark = message.find(kMark, at);
    result += message.substr(at, mark - at);
    if (mark == std::string::npos) return result;
    result += place(std::atoi(message.c_str() + mark + 1));
    at = std::min(message.find(kMark, mark + 1), message.size() - 1) + 1;
  }
}

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
  const auto operand = [&](int t, int scales, bool is_transposed) {
    const std::string of_tensor = tensor_name(t) + (is_transposed ? "'" : "");
    return scales == -1 ? of_tensor : "scaled(" + of_tensor + ", " + tensor_name(scales) + ")";
  };
  for (const GemmSegment& segment : s.segments()) {
    add(operand(segment.a, segment.scales_a, segment.transpose_a));
    add(operand(segment.b, segment.scales_b, segment.transpose_b));
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
