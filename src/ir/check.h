// SPDX-License-Identifier: Apache-2.0
// The message of a builder's error: the operation, its operands by name with their shapes, what is
// wrong, and the caller's line.
#pragma once

#include <string>
#include <vector>

#include "coda/graph.h"

namespace coda {

[[noreturn]] void fail(const char* op, const std::vector<Value>& operands,
                       const std::string& problem, const Where& where);

// For builders that passes do not call: where they do, the operands and the problem are not written
// down before something is wrong.
inline void check(bool condition, const char* op, const std::vector<Value>& operands,
                  const std::string& problem, const Where& where) {
  if (!condition) fail(op, operands, problem, where);
}

}  // namespace coda
