// SPDX-License-Identifier: Apache-2.0
// A problem of a program and the step that has it. Checks in this folder throw a Problem; its
// callers (verify, the parser, the builder) catch it and add the step's position: in a listing, in
// a text, in C++ source.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coda/program.h"

namespace coda::program {

struct Problem {
  int step = -1;          // -1: the program as a whole
  std::string message{};  // names other steps by place_of_step
};

// A placeholder in a message for the position of a step, such as "step 4" or "line 7".
std::string place_of_step(int step);
inline std::string step_text(int step) { return "step " + std::to_string(step); }
std::string with_places(const std::string& message,
                        const std::function<std::string(int step)>& place);

[[noreturn]] inline void fail(int step, std::string message) {
  throw Problem{step, std::move(message)};
}
inline void check(bool condition, int step, const auto& message) {
  if (!condition) fail(step, message());
}

// All rules that the program breaks, except those that depend on a broken one.
std::vector<Problem> find_problems(const Program& program);

// Thrown if several problems may be found; never empty.
struct Problems {
  std::vector<Problem> all;
};

// "v4 = mul(v2, v3) [M, N]": a single step for messages. Works for any contents of the step.
std::string describe_step(const Program& program, int step);

}  // namespace coda::program
