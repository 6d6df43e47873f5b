// SPDX-License-Identifier: Apache-2.0
// Whether two graphs are the same, node by node, as far as their outputs reach.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "coda/graph_text.h"
#include "ir/rebuild.h"

namespace coda::tests {

inline std::vector<int> reached_nodes(const Graph& graph, std::span<const NamedValue> outputs) {
  std::vector<int> roots;
  for (const NamedValue& output : outputs) roots.push_back(output.value.id);
  const std::vector<bool> reached = reached_from(graph, roots);
  std::vector<int> ids;
  for (int id = 0; id < graph.size(); ++id) {
    if (reached[static_cast<size_t>(id)]) ids.push_back(id);
  }
  return ids;
}

// Both have the same nodes as far as outputs reach, with all their fields. `in_order`: and in the
// same order, the n-th of one is the n-th of the other; else they are found from the outputs, and
// correspond one to one.
inline void expect_same(const Graph& a, std::span<const NamedValue> outputs_a, const Graph& b,
                        std::span<const NamedValue> outputs_b, bool in_order) {
  const std::vector<int> of_a = reached_nodes(a, outputs_a);
  const std::vector<int> of_b = reached_nodes(b, outputs_b);
  ASSERT_EQ(of_a.size(), of_b.size());
  std::map<int, int> other;  // of a node of `a`
  ASSERT_EQ(outputs_a.size(), outputs_b.size());
  for (size_t i = 0; i < outputs_a.size(); ++i) {
    ASSERT_EQ(outputs_a[i].name, outputs_b[i].name);
    ASSERT_EQ(outputs_a[i].dtype, outputs_b[i].dtype);
    other.emplace(outputs_a[i].value.id, outputs_b[i].value.id);
    ASSERT_EQ(other.at(outputs_a[i].value.id), outputs_b[i].value.id);
  }
  for (size_t k = of_a.size(); k > 0; --k) {  // readers before operands
    const size_t i = k - 1;
    SCOPED_TRACE("node " + std::to_string(of_a[i]) + " of the first graph");
    ASSERT_TRUE(other.contains(of_a[i]));
    if (in_order) {
      ASSERT_EQ(other.at(of_a[i]), of_b[i]);
    }
    const Node& m = a.node(of_a[i]);
    const Node& n = b.node(other.at(of_a[i]));
    ASSERT_EQ(m.op, n.op);
    ASSERT_EQ(m.operands.size(), n.operands.size());
    for (size_t o = 0; o < m.operands.size(); ++o) {
      other.emplace(m.operands[o], n.operands[o]);
      ASSERT_EQ(other.at(m.operands[o]), n.operands[o]);
    }
    ASSERT_EQ(m.shape, n.shape);
    ASSERT_EQ(m.fn, n.fn);
    ASSERT_EQ(m.reduction, n.reduction);
    // Bit for bit, so that -0 is not 0; of NaN the sign.
    ASSERT_EQ(std::signbit(m.number), std::signbit(n.number));
    ASSERT_TRUE(m.number == n.number || (std::isnan(m.number) && std::isnan(n.number)));
    ASSERT_EQ(m.dim, n.dim);
    ASSERT_EQ(m.which, n.which);
    ASSERT_EQ(m.repeat, n.repeat);
    ASSERT_EQ(m.transposes, n.transposes);
    ASSERT_EQ(m.name, n.name);
    ASSERT_EQ(m.kind, n.kind);
    ASSERT_EQ(m.dtype, n.dtype);
    ASSERT_EQ(m.operation, n.operation);
    ASSERT_EQ(m.attributes, n.attributes);
    ASSERT_EQ(m.sizes, n.sizes);
    ASSERT_EQ(m.results, n.results);
    ASSERT_EQ(m.result_is_fp32, n.result_is_fp32);
  }
  std::set<int> images;
  for (const auto& [id, image] : other) images.insert(image);
  ASSERT_EQ(images.size(), of_b.size());
}

// parse_graph(text(g)) is g, and prints as g does.
inline void expect_round_trip(const Graph& graph, std::span<const NamedValue> outputs,
                              bool in_order = true) {
  const std::string printed = text(graph, outputs);
  SCOPED_TRACE(printed.size() < 6000 ? printed : printed.substr(0, 6000) + "...");
  const NamedGraph parsed = parse_graph(printed);
  expect_same(graph, outputs, parsed.graph, parsed.outputs, in_order);
  EXPECT_EQ(text(parsed), printed);
  EXPECT_EQ(format_graph(printed), printed);
}

}  // namespace coda::tests
