// SPDX-License-Identifier: Apache-2.0
// A program as a framework without fusion runs it: every operation on tiles reads its operands from
// memory and writes its result there. What a program gains by its epilogue is the time of this.
#pragma once

#include <optional>

#include "coda/plan.h"

namespace coda::measure {

// How tables call it, and the copy of as many bytes beside it.
inline constexpr const char* kOneByOne = "operations one by one";
inline constexpr const char* kCopy = "copy of as many bytes";

// The tensors are the program's, and a temporary for each value that it stores nowhere, of the type
// of its widest stored tensor. What is made of vectors alone is not an operation of its own.
// Nothing for a program without tiles, with one operation, or with a value that no program can
// store alone.
std::optional<Plan> one_by_one(const Program& program);

}  // namespace coda::measure
