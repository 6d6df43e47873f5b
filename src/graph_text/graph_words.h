// SPDX-License-Identifier: Apache-2.0
// The words of a graph's text: one row a function, with the operation of a Graph that it makes and
// what stands between its brackets. The parser, the printer and the layout read the rows.
// Elementwise operations and numbers have none (program/expression_text.h), nor have calls of
// operations, which go by the operations' names.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "coda/graph.h"

namespace coda::graph_text {

enum class GraphArgument : uint8_t {
  none,
  tensor,      // x[M, N]:bf16
  value,       // the next operand
  values,      // one operand or more
  segments,    // a, b, nt; ...
  reduction,   // sum(the next operand)
  pair_group,  // interleaved, concatenated, or columns
  dim,         // sizes, each a field of Node: dim,
  columns,     // shape.cols,
  repeat,      // repeat
};

struct GraphWord {
  std::string_view word;
  Op op;
  std::array<GraphArgument, 3> arguments;  // none: there are no more
  std::string_view value_name;             // in printed text
  InputKind kind = InputKind::activation;  // of an input
};

// What passes make although builders would take what is there: a product or a call once more, as a
// recomputed layer has them, again(gemm(a, b)), see Node::which; a copy, again(add(x, 0)).
inline constexpr std::string_view kAgain = "again";
inline constexpr std::string_view kStore = "store";

std::span<const GraphWord> graph_words();
const GraphWord* find_graph_word(std::string_view word);
// The first row of an operation; none for what has no word of its own.
const GraphWord* find_graph_word(Op op);

// Whether an argument of a function, counted from 0, is a size (program/layout.h).
bool is_size(std::string_view function, size_t argument);

// Functions, for messages.
const std::vector<std::string_view>& graph_functions();
// Words that cannot name a value.
bool is_reserved_in_graph(std::string_view word);

}  // namespace coda::graph_text
