// SPDX-License-Identifier: Apache-2.0
// The message of a builder's error: the operation, the operands' shapes, what is wrong, and the
// caller's line.
#pragma once

#include <string>
#include <vector>

#include "coda/error.h"
#include "coda/graph.h"

namespace coda {

[[noreturn]] inline void fail(const char* op, const std::vector<Value>& operands,
                              const std::string& problem, const Where& where) {
  std::string shapes;
  for (const Value& v : operands) shapes += (shapes.empty() ? "" : ", ") + v.shape().text();
  throw Error(std::string(op) + "(" + shapes + "): " + problem + " (built at " + where.file_name() +
              ":" + std::to_string(where.line()) + ")");
}

// For builders that passes do not call: where they do, the operands and the problem are not written
// down before something is wrong.
inline void check(bool condition, const char* op, const std::vector<Value>& operands,
                  const std::string& problem, const Where& where) {
  if (!condition) fail(op, operands, problem, where);
}

}  // namespace coda
