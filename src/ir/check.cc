// SPDX-License-Identifier: Apache-2.0
#include "ir/check.h"

#include <string_view>

#include "coda/error.h"
#include "ir/op_names.h"

namespace coda {
namespace {

// "x: [M, 8]" for an input, "matmul: [M, 8]" for a result.
std::string operand_text(const Value& v) {
  if (v.graph == nullptr) return "a Value that no graph has made";
  const Node& node = v.graph->node(v.id);
  std::string name(name_of(node.op));
  if (node.op == Op::elementwise) name = info(node.fn).name;
  if (!node.name.empty()) name = node.name;
  return name + ": " + node.shape.text();
}

}  // namespace

void fail(const char* op, const std::vector<Value>& operands, const std::string& problem,
          const Where& where) {
  std::string texts;
  for (const Value& v : operands) texts += (texts.empty() ? "" : ", ") + operand_text(v);
  const std::string place = at(where);
  throw Error(std::string(op) + "(" + texts + "): " + problem +
              (place.empty() ? "" : " (built" + place + ")"));
}

Graph& graph_of(const char* op, std::span<const Value> operands, const Where& where) {
  const auto wrong = [&](const char* problem) {
    fail(op, {operands.begin(), operands.end()}, problem, where);
  };
  if (operands.empty()) wrong("has no operands");
  for (const Value& v : operands) {
    if (v.graph == nullptr) wrong("an operand is of no graph");
    if (v.graph != operands[0].graph) wrong("the operands are of different graphs");
  }
  return *operands[0].graph;
}

std::string at(const Where& where) {
  constexpr std::string_view kThisFile = "ir/check.cc";
  std::string_view sources = Where::current().file_name();
  sources.remove_suffix(kThisFile.size());
  const std::string_view file = where.file_name();
  if (file.starts_with(sources)) return "";
  return " at " + std::string(file) + ":" + std::to_string(where.line());
}

}  // namespace coda
