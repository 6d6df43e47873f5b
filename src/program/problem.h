// SPDX-License-Identifier: Apache-2.0
// What is wrong with a program, and at which step. Checks inside this folder throw a Problem; the
// faces (verify, the parser, the builder) catch it and say where the step stands: in a listing, in
// a text, in C++ source.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "coda/program.h"

namespace coda::program {

struct Problem {
  int step = -1;  // -1: of the program as a whole
  std::string message;
};

[[noreturn]] inline void fail(int step, std::string message) {
  throw Problem{step, std::move(message)};
}
inline void check(bool condition, int step, const auto& message) {
  if (!condition) fail(step, message());
}

// The first rule that the program breaks.
std::optional<Problem> find_problem(const Program& program);

// "v4 = mul(v2, v3) [M, N]": a step on its own, for messages. Never fails, whatever the step holds.
std::string describe_step(const Program& program, int step);

}  // namespace coda::program
