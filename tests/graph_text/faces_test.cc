// SPDX-License-Identifier: Apache-2.0
// The same graph from the builders of C++, from those of Python (tests/python/session_test.py) and
// from a text is one: all print the text of faces/head.coda.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "coda/builders.h"
#include "graph_text/same_graph.h"

namespace coda {
namespace {

TEST(GraphFaces, BuildersMakeTheGraphOfTheText) {
  std::ostringstream file;
  file << std::ifstream(CODA_SOURCE_DIR "/tests/graph_text/faces/head.coda").rdbuf();
  Graph g;
  const Dim columns = 2 * Dim("D");
  const Dim wide = 4 * Dim("D");
  const Value x = g.input("x", {"M", columns}, DType::bf16);
  const Value h = rms_norm(x, g.parameter("norm", {1, columns}), 1e-5);
  const Value z = linear(h, g.parameter("w", {wide, columns}, DType::bf16));
  const Value gate = split_pair(z, wide, 0);
  const Value up = split_pair(z, wide, 1);
  const Value y = x + swiglu(gate, up) / 2.0;
  const Value logits = soft_cap(linear(y, g.parameter("head", {"V", columns})), 30);
  const Value lse = row_logsumexp(logits);
  const Value chosen = select_column(logits, g.table("target", {"M", 1}, DType::i32));
  const std::vector<NamedValue> outputs = {{"y", y, DType::bf16}, {"rows", lse - chosen}};
  EXPECT_EQ(text(g, outputs, "head"), file.str());
  const NamedGraph parsed = parse_graph(file.str());
  tests::expect_same(g, outputs, parsed.graph, parsed.outputs, true);
}

}  // namespace
}  // namespace coda
