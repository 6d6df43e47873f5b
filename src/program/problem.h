// SPDX-License-Identifier: Apache-2.0
// What is wrong with a program, and at which step. Checks inside this folder throw a Problem; the
// faces (verify, the parser, the builder) catch it and say where the step stands: in a listing, in
// a text, in C++ source.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coda/program.h"

namespace coda::program {

struct Problem {
  int step = -1;          // -1: of the program as a whole
  std::string message{};  // names other steps by place_of_step
};

// Stands in a message for the place of a step, until a face says it: "step 4", "line 7".
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

// All rules that the program breaks, but for those that build on a broken one.
std::vector<Problem> find_problems(const Program& program);

// Thrown where more than one may be found; never empty.
struct Problems {
  std::vector<Problem> all;
};

// "v4 = mul(v2, v3) [M, N]": a step on its own, for messages. Never fails, whatever the step holds.
std::string describe_step(const Program& program, int step);

}  // namespace coda::program
