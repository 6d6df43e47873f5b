// SPDX-License-Identifier: Apache-2.0
// Splits a program into one program for each operation on tiles, as a framework without fusion runs
// it: every operation reads its operands from memory and writes its result there. The difference in
// time is the gain of the program's epilogue.
#pragma once

#include <optional>

#include "coda/plan.h"

namespace coda::measure {

// The names in tables of this and of a copy of as many bytes.
inline constexpr const char* kOneByOne = "operations one by one";
inline constexpr const char* kCopy = "copy of as many bytes";

// The tensors are those of the program, and a temporary for each value that the program does not
// store, with the type of its widest stored tensor. Operations on vectors alone are not split off.
// Empty for a program without tiles, with a single operation, or with a value that no program can
// store alone.
std::optional<Plan> one_by_one(const Program& program);

}  // namespace coda::measure
