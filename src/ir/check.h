// SPDX-License-Identifier: Apache-2.0
// What every builder asks first, that its operands are values of one graph, and the message of a
// builder's error: the operation, its operands by name with their shapes, what is wrong, and the
// caller's line.
#pragma once

#include <initializer_list>
#include <span>
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

// The graph of the operands. Error unless each has one, and it is the same; so a builder calls it
// before it looks at an operand.
Graph& graph_of(const char* op, std::span<const Value> operands, const Where& where);
inline Graph& graph_of(const char* op, std::initializer_list<Value> operands, const Where& where) {
  return graph_of(op, std::span(operands.begin(), operands.size()), where);
}

// Of a value that has been checked.
inline const Node& node_of(Value v) { return v.graph->node(v.id); }
inline Value operand(Value v, size_t i) { return {v.graph, node_of(v).operands[i]}; }

// " at file:line", for messages; nothing where a part of this library is the caller: a path of ours
// tells its user nothing.
std::string at(const Where& where);

}  // namespace coda
