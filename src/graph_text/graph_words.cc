// SPDX-License-Identifier: Apache-2.0
#include "graph_text/graph_words.h"

#include <algorithm>

#include "program/vocabulary.h"

namespace coda::graph_text {
namespace {

using A = GraphArgument;

// The first row of a word is what the parser makes of it: row_reduce becomes row_sum of itself.
constexpr GraphWord kWords[] = {
    {"input", Op::input, {A::tensor}, "x"},
    {"parameter", Op::input, {A::tensor}, "w", InputKind::parameter},
    {"table", Op::input, {A::tensor}, "t", InputKind::table},
    {"reciprocal_dim", Op::reciprocal_dim, {A::dim}, "part"},
    {"ones", Op::ones, {A::columns}, "one"},
    {"column_index", Op::column_index, {A::columns}, "columns"},
    {"gemm", Op::matmul, {A::segments}, "acc"},
    {"reduce_rows", Op::row_reduce, {A::reduction}, "r"},
    {"reduce_rows", Op::row_sum, {A::reduction}, "r"},
    {"reduce_columns", Op::col_reduce, {A::reduction}, "c"},
    {"reduce_columns", Op::col_sum, {A::reduction}, "c"},
    {"select_column", Op::select_column, {A::value, A::value}, "chosen"},
    {"split_pairs", Op::split_pair, {A::value, A::pair_group}, "half"},
    {"merge_pairs", Op::merge_pairs, {A::value, A::value, A::pair_group}, "pairs"},
    {"slice_columns", Op::slice_columns, {A::value, A::dim, A::columns}, "slice"},
    {"concat_columns", Op::concat_columns, {A::values}, "joined"},
    {"repeat_columns", Op::repeat_columns, {A::value, A::repeat}, "repeated"},
    {"gather_rows", Op::gather_rows, {A::value, A::value}, "gathered"},
    {"reduce_group", Op::group_sum, {A::value, A::dim}, "sums"},
    {"repeat_group", Op::group_repeat, {A::value, A::dim}, "repeated"},
    {"transpose_vector", Op::transpose, {A::value}, "turned"},
};

}  // namespace

std::span<const GraphWord> graph_words() { return kWords; }

const GraphWord* find_graph_word(std::string_view word) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [&](const GraphWord& row) { return row.word == word; });
  return found == std::end(kWords) ? nullptr : found;
}

const GraphWord* find_graph_word(Op op) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [&](const GraphWord& row) { return row.op == op; });
  return found == std::end(kWords) ? nullptr : found;
}

bool is_size(std::string_view function, size_t argument) {
  const GraphWord* word = find_graph_word(function);
  if (word == nullptr || argument >= word->arguments.size()) return false;
  const A what = word->arguments[argument];
  return what == A::dim || what == A::columns || what == A::repeat || what == A::pair_group;
}

const std::vector<std::string_view>& graph_functions() {
  static const auto words = [] {
    std::vector<std::string_view> all;
    for (const GraphWord& row : kWords) {
      if (all.empty() || all.back() != row.word) all.push_back(row.word);
    }
    all.insert(all.end(), {kAgain, "where"});
    for (int op = 0; op < kElementwiseCount; ++op)
      all.push_back(info(static_cast<Elementwise>(op)).name);
    return all;
  }();
  return words;
}

bool is_reserved_in_graph(std::string_view word) {
  return word == "_" || word == "inf" || word == "nan" || word == kStore || word == kAgain ||
         find_graph_word(word) != nullptr || program::operation_by_word(word).has_value();
}

}  // namespace coda::graph_text
