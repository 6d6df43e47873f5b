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

// A graph with a name and what is wanted of it.
struct NamedGraph {
  std::string name = "graph";
  Graph graph{};
  // Values of this graph, in the order of their text. A type that is not written is none here.
  std::vector<NamedValue> outputs{};

  NamedGraph() = default;
  NamedGraph(const NamedGraph& other);
  NamedGraph(NamedGraph&&) = default;
  NamedGraph& operator=(const NamedGraph& other) { return *this = NamedGraph(other); }
  NamedGraph& operator=(NamedGraph&&) = default;
};

// The graph of a text. Values are made by the builders of coda/graph.h in the order of the text, so
// it is the graph that the same calls in C++ or Python make: composite operations (a - b, silu)
// expand, constants fold, equal values are one. Throws ProgramError with all mistakes of the text,
// of which `file` is the name there.
NamedGraph parse_graph(std::string_view text, std::string_view file = "text");

// All that the outputs are made of. For a graph that builders made, parse_graph(text(g)) has the
// same nodes in the same order, without those that no output reads; its text is the same.
std::string text(const Graph& graph, std::span<const NamedValue> outputs,
                 std::string_view name = "graph");
inline std::string text(const NamedGraph& named) {
  return text(named.graph, named.outputs, named.name);
}

// Whether a text begins as one of a graph does, whatever follows; else it may be a program's.
bool is_graph_text(std::string_view text);

// As format_program (coda/program_format.h), of a graph's text.
std::string format_graph(std::string_view text, std::string_view file = "text");

// Of a file. Throws Error naming it; for a wrong text a ProgramError.
NamedGraph read_graph(const std::filesystem::path& file);

// The same graph with inputs and outputs of other types: `type` gives that of a tensor from the one
// that it has (of an output without a type: f32).
using ChangeType = std::function<DType(const std::string& name, const Shape& shape, DType type)>;
NamedGraph with_types(const NamedGraph& named, const ChangeType& type);

}  // namespace CODA_API coda
