// SPDX-License-Identifier: Apache-2.0
// Graphs as text, in the language of programs (docs/program-text.md):
//
//     graph mlp {
//       x = input(x[M, D]:bf16)
//       h = silu(gemm(x, parameter(up[F, D]:bf16)))
//       y = x + gemm(h, parameter(down[D, F]:bf16))
//       store(y:bf16, y)
//     }
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/graph.h"

namespace CODA_API coda {

// A graph with a name and its requested outputs.
struct NamedGraph {
  std::string name = "graph";
  Graph graph{};
  // Values of this graph in the order of the text. An output without a type in the text has none
  // here.
  std::vector<NamedValue> outputs{};

  NamedGraph() = default;
  NamedGraph(const NamedGraph& other);
  NamedGraph(NamedGraph&&) = default;
  NamedGraph& operator=(const NamedGraph& other) { return *this = NamedGraph(other); }
  NamedGraph& operator=(NamedGraph&&) = default;
};

// Parses a graph. Values are made by the builders of coda/graph.h in the order of the text, so the
// result is the graph that the same calls in C++ or Python make: composite operations (a - b, silu)
// expand, constants fold, equal values are one node. Throws ProgramError with all mistakes of the
// text; `file` is its name in messages.
NamedGraph parse_graph(std::string_view text, std::string_view file = "text");

// The text of all nodes that the outputs depend on. For a graph that builders made,
// parse_graph(text(g)) has the same nodes in the same order, without unused ones, and the same
// text.
std::string text(const Graph& graph, std::span<const NamedValue> outputs,
                 std::string_view name = "graph");
inline std::string text(const NamedGraph& named) {
  return text(named.graph, named.outputs, named.name);
}

// Whether the text starts like a graph's; otherwise it may be a program's.
bool is_graph_text(std::string_view text);

// As format_program (coda/program_format.h), for the text of a graph.
std::string format_graph(std::string_view text, std::string_view file = "text");

// Reads a graph from a file. Throws Error naming the file, or ProgramError for an invalid text.
NamedGraph read_graph(const std::filesystem::path& file);

// The same graph with other types of inputs and outputs. `type` maps the current type of a tensor
// to the new one (an output without a type counts as f32).
using ChangeType = std::function<DType(const std::string& name, const Shape& shape, DType type)>;
NamedGraph with_types(const NamedGraph& named, const ChangeType& type);

}  // namespace CODA_API coda
