// SPDX-License-Identifier: Apache-2.0
// The text of a graph. The parser makes nodes in the order of the text, and the canonical order of
// operands goes by their ids (coda/graph.h); so statements stand in the order of the nodes, and a
// node is written inside an expression only where reading that makes it at its own place.
// Sizes and numbers, which cost nothing to write again, are the same node wherever they stand.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "coda/error.h"
#include "coda/graph_text.h"
#include "coda/operation.h"
#include "graph_text/graph_words.h"
#include "ir/rebuild.h"
#include "program/expression_text.h"
#include "program/layout.h"
#include "program/vocabulary.h"

namespace coda::graph_text {
namespace {

using program::Expression;
using program::Level;
using program::quoted_name;

constexpr int kMaxInlined = 6;  // operations in one expression: more are hard to read

bool is_literal(const Node& node) {
  return node.op == Op::constant || node.op == Op::reciprocal_dim || node.op == Op::ones ||
         node.op == Op::column_index;
}

class GraphPrinter {
 public:
  GraphPrinter(const Graph& graph, std::span<const NamedValue> outputs)
      : graph_(graph), outputs_(outputs) {
    std::vector<int> roots;
    for (const NamedValue& output : outputs) roots.push_back(output.value.id);
    const std::vector<bool> reached = reached_from(graph, roots);
    rank_.resize(reached.size(), -1);
    for (size_t id = 0; id < reached.size(); ++id) {
      if (!reached[id]) continue;
      rank_[id] = static_cast<int>(ids_.size());
      ids_.push_back(static_cast<int>(id));
    }
    const size_t count = ids_.size();
    uses_.resize(count, 0);
    inlined_.resize(count, 0);
    stated_.resize(count, 0);
    names_.resize(count);
    operands_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      for (const int operand : node(static_cast<int>(i)).operands) {
        operands_[i].push_back(rank_[static_cast<size_t>(operand)]);
        ++uses_[static_cast<size_t>(operands_[i].back())];
      }
    }
    for (const NamedValue& output : outputs) {
      const int i = rank_[static_cast<size_t>(output.value.id)];
      ++uses_[static_cast<size_t>(i)];
      if (!wanted_.contains(i)) wanted_.emplace(i, free_name(output.name));
    }
  }

  std::string print(std::string_view name) {
    find_statements();
    std::string text = "graph " + quoted_name(name) + " {\n";
    for (int i = 0; i < count(); ++i) {
      if (is(stated_, i)) text += "  " + statement(i) + "\n";
    }
    for (const NamedValue& output : outputs_) {
      const int i = rank_[static_cast<size_t>(output.value.id)];
      text += "  " + std::string(kStore) + "(" + quoted_name(output.name) +
              (output.dtype ? ":" + std::string(coda::name_of(*output.dtype)) : "") + ", " +
              mention(i).text + ")\n";
    }
    return text + "}\n";
  }

 private:
  int count() const { return static_cast<int>(ids_.size()); }
  const Node& node(int i) const { return graph_.node(ids_[static_cast<size_t>(i)]); }
  const std::vector<int>& operands(int i) const { return operands_[static_cast<size_t>(i)]; }
  static bool is(const std::vector<char>& flags, int i) { return flags[static_cast<size_t>(i)]; }

  // ---- Which nodes are statements.

  // Of a call that stands directly before it: both are one expression.
  bool is_only_result(int i) const {
    return i > 0 && operands(i)[0] == i - 1 && node(i - 1).results.size() == 1;
  }
  // The other member of the same pairs stands before it, and is the first.
  bool is_second_member(int i) const {
    if (i == 0 || node(i).op != Op::split_pair || node(i - 1).op != Op::split_pair) return false;
    const Node& a = node(i - 1);
    const Node& b = node(i);
    return a.which == 0 && b.which == 1 && a.operands == b.operands && a.dim == b.dim;
  }
  bool may_be_inlined(int i) const {
    if (is_literal(node(i))) return true;
    if (node(i).op == Op::opaque) return node(i).results.size() == 1;
    if (node(i).op == Op::result && !is_only_result(i)) return false;
    return is_used_once(i) && node(i).op != Op::split_pair;
  }
  bool is_used_once(int i) const { return uses_[static_cast<size_t>(i)] == 1; }

  // From the last node to the first: each statement takes the operands that directly precede it.
  void find_statements() {
    for (int i = count() - 1; i >= 0;) {
      const bool is_result = node(i).op == Op::result;
      if (is_result && !is_only_result(i)) {
        --i;  // its call's statement names it
        continue;
      }
      stated_[static_cast<size_t>(i)] = 1;
      const int last = is_second_member(i) ? i - 1 : i;
      int cursor = last - 1;
      int budget = kMaxInlined;
      take_operands(last, cursor, budget);
      if (!reads_in_order(last, cursor)) {
        const int first = cursor + 1;
        cursor = last - 1;
        for (int o = first; o < last; ++o) inlined_[static_cast<size_t>(o)] = 0;
        if (is_result) take(i - 1, cursor);
      }
      i = cursor;
    }
  }
  void take(int o, int& cursor) {
    inlined_[static_cast<size_t>(o)] = 1;
    --cursor;
  }
  void take_operands(int i, int& cursor, int& budget) {
    const std::vector<int>& all = operands(i);
    for (auto o = all.rbegin(); o != all.rend(); ++o) {
      if (*o != cursor || !may_be_inlined(*o)) continue;
      const bool is_leaf = operands(*o).empty() || node(*o).op == Op::opaque;
      if (!is_leaf && budget == 0) continue;
      budget -= is_leaf ? 0 : 1;
      take(*o, cursor);
      take_operands(*o, cursor, budget);
    }
  }

  // Whether the expression of node `i`, which holds the nodes behind `before`, makes them in order.
  bool reads_in_order(int i, int before) const {
    std::vector<int> made;
    std::set<int> seen;
    const auto read = [&](const auto& self, int at) -> void {
      for (const int o : operands(at)) {
        if (o > before && is(inlined_, o)) self(self, o);
      }
      if (seen.insert(at).second) made.push_back(at);
    };
    read(read, i);
    for (size_t k = 0; k < made.size(); ++k) {
      if (made[k] != before + 1 + static_cast<int>(k)) return false;
    }
    return static_cast<int>(made.size()) == i - before;
  }

  // ---- Their text.

  std::string statement(int i) {
    const Node& n = node(i);
    if (n.op == Op::opaque) {
      std::vector<int> results(n.results.size(), -1);
      for (int r = i + 1; r < count(); ++r) {
        if (node(r).op == Op::result && operands(r)[0] == i)
          results[static_cast<size_t>(node(r).which)] = r;
      }
      const std::string text = expression(i).text;
      std::string targets;
      for (const int r : results)
        targets += (targets.empty() ? "" : ", ") + (r < 0 ? "_" : name(r, n.name));
      return targets + " = " + text;
    }
    const std::string text = expression(i).text;
    if (n.op != Op::split_pair) return name(i, value_name(i)) + " = " + text;
    std::array<std::string, 2> members = {"_", "_"};
    if (is_second_member(i)) members[0] = name(i - 1, "first");
    members[static_cast<size_t>(n.which)] = name(i, n.which == 0 ? "first" : "second");
    return members[0] + ", " + members[1] + " = " + text;
  }

  std::string value_name(int i) const {
    const Node& n = node(i);
    if (n.op == Op::result) return node(operands(i)[0]).name;
    if (n.op == Op::input) return n.name;
    const GraphWord* word = find_graph_word(n.op);
    return word == nullptr ? "v" : std::string(word->value_name);
  }

  // What is wanted as a name of letters, digits and _, with a number if another value has it.
  std::string free_name(std::string wanted) {
    for (char& c : wanted) {
      if (!program::is_letter(c) && !program::is_digit(c)) c = '_';
    }
    if (!program::is_identifier(wanted) || is_reserved_in_graph(wanted)) wanted = "v";
    std::string free = wanted;
    int& number = numbers_[wanted];
    while (!taken_.insert(free).second)
      free = wanted + "_" + std::to_string(number = std::max(number + 1, 2));
    return free;
  }
  const std::string& name(int i, const std::string& wanted) {
    const auto output = wanted_.find(i);
    return names_[static_cast<size_t>(i)] =
               output != wanted_.end() ? output->second : free_name(wanted);
  }

  // A node where it is read.
  Expression mention(int i) {
    if (is(inlined_, i) || (is_literal(node(i)) && names_[static_cast<size_t>(i)].empty()))
      return expression(i);
    return {names_[static_cast<size_t>(i)]};
  }
  std::string operand_text(int i, size_t index) { return mention(operands(i)[index]).text; }

  bool is_inlined(int i, Elementwise fn) const {
    return is(inlined_, i) && node(i).op == Op::elementwise && node(i).fn == fn;
  }
  // x * -1, which neg and sub expand to.
  bool is_negated(int i) const {
    return node(i).op == Op::elementwise && node(i).fn == Elementwise::mul &&
           node(operands(i)[1]).op == Op::constant && node(operands(i)[1]).number == -1 &&
           names_[static_cast<size_t>(operands(i)[1])].empty();
  }

  Expression elementwise(int i) {
    const Node& n = node(i);
    Elementwise fn = n.fn;
    std::vector<int> of = operands(i);
    if (fn == Elementwise::add && is_inlined(of[1], Elementwise::mul) && is_negated(of[1])) {
      fn = Elementwise::sub;
      of[1] = operands(of[1])[0];
    } else if (is_negated(i)) {
      fn = Elementwise::neg;
      of.pop_back();
    } else if (fn == Elementwise::mul && is_inlined(of[1], Elementwise::recip)) {
      fn = Elementwise::div;
      of[1] = operands(of[1])[0];
    }
    std::vector<Expression> all;
    for (const int o : of) all.push_back(mention(o));
    const Node& second = node(operands(i).back());
    if (n.fn == Elementwise::add && second.op == Op::constant && second.number == 0)
      return {std::string(kAgain) + "(add(" + all[0].text + ", " + all[1].text + "))"};
    return program::elementwise_expression(fn, all);
  }

  Expression expression(int i) {
    const Node& n = node(i);
    switch (n.op) {
      case Op::constant: return program::number_expression(n.number);
      case Op::elementwise: return elementwise(i);
      case Op::result: return expression(operands(i)[0]);
      case Op::opaque: return {again(n, operation(i))};
      case Op::input:
      case Op::reciprocal_dim:
      case Op::ones:
      case Op::column_index:
      case Op::row_sum:
      case Op::col_sum:
      case Op::row_reduce:
      case Op::col_reduce:
      case Op::select_column:
      case Op::matmul:
      case Op::split_pair:
      case Op::merge_pairs:
      case Op::slice_columns:
      case Op::concat_columns:
      case Op::repeat_columns:
      case Op::gather_rows:
      case Op::group_sum:
      case Op::group_repeat:
      case Op::transpose: return {function(i)};
    }
    throw InternalError("a node has no text");
  }

  static std::string again(const Node& n, std::string text) {
    for (int times = 0; times < n.which; ++times) text = std::string(kAgain) + "(" + text + ")";
    return text;
  }

  std::string operation(int i) {
    const Node& n = node(i);
    std::string text = is_reserved_in_graph(n.name) ? "\"" + n.name + "\"(" : n.name + "(";
    for (size_t o = 0; o < n.operands.size(); ++o)
      text += (o == 0 ? "" : ", ") + operand_text(i, o);
    for (const auto& [attribute, value] : n.attributes)
      text += ", " + attribute + "=" + program::number_text(value);
    for (const auto& [size, value] : n.sizes) text += ", " + size + "=" + value.text();
    return text + ")";
  }

  std::string function(int i) {
    const Node& n = node(i);
    const GraphWord* word = find_graph_word(n.op);
    if (n.op == Op::input) {
      word = std::find_if(graph_words().begin(), graph_words().end(), [&](const GraphWord& row) {
               return row.op == Op::input && row.kind == n.kind;
             }).base();
    }
    std::string text;
    size_t next = 0;
    for (const GraphArgument argument : word->arguments) {
      if (argument == GraphArgument::none) break;
      text += (text.empty() ? "" : ", ") + argument_text(argument, i, next);
    }
    text = std::string(word->word) + "(" + text + ")";
    return n.op == Op::matmul ? again(n, text) : text;
  }

  std::string argument_text(GraphArgument argument, int i, size_t& next) {
    const Node& n = node(i);
    switch (argument) {
      case GraphArgument::none: return "";
      case GraphArgument::tensor:
        return quoted_name(n.name) + (n.shape.is_scalar() ? "" : n.shape.text()) +
               (n.dtype == DType::f32 ? "" : ":" + std::string(coda::name_of(n.dtype)));
      case GraphArgument::value: return operand_text(i, next++);
      case GraphArgument::values: {
        std::string all;
        for (; next < n.operands.size(); ++next)
          all += (all.empty() ? "" : ", ") + operand_text(i, next);
        return all;
      }
      case GraphArgument::segments: return segments(i);
      case GraphArgument::reduction: {
        const bool is_sum = n.op == Op::row_sum || n.op == Op::col_sum;
        return std::string(info(is_sum ? PartialKind::sum : n.reduction).name) + "(" +
               operand_text(i, next++) + ")";
      }
      case GraphArgument::pair_group: {
        const Dim& columns = node(operands(i)[0]).shape.cols;
        return program::group_text(n.dim, static_cast<int64_t>(n.operands.size()) * columns);
      }
      case GraphArgument::dim: return n.dim.text();
      case GraphArgument::columns: return n.shape.cols.text();
      case GraphArgument::repeat: return n.repeat.text();
    }
    throw InternalError("an argument has no text");
  }

  std::string segments(int i) {
    const Node& n = node(i);
    std::string text;
    for (size_t s = 0; s < n.transposes.size(); ++s) {
      text += (s == 0 ? "" : "; ") + operand_text(i, 2 * s) + ", " + operand_text(i, 2 * s + 1);
      const Shape& a = node(operands(i)[2 * s]).shape;
      const Shape& b = node(operands(i)[2 * s + 1]).shape;
      // The layout is left out where the operands can be contracted in one way.
      const int shared =
          (a.rows == b.rows) + (a.rows == b.cols) + (a.cols == b.rows) + (a.cols == b.cols);
      if (shared == 1) continue;
      text += std::string(", ") + (n.transposes[s].a ? "t" : "n") + (n.transposes[s].b ? "t" : "n");
    }
    return text;
  }

  const Graph& graph_;
  std::span<const NamedValue> outputs_;
  // Of all nodes that outputs reach, in order; below they go by their place there.
  std::vector<int> ids_;
  std::vector<int> rank_;  // by id: that place, or -1
  std::vector<std::vector<int>> operands_;
  std::vector<int> uses_;
  std::map<int, std::string> wanted_;  // names of outputs
  std::vector<char> inlined_;          // written inside the expression that reads it
  std::vector<char> stated_;           // a statement stands for it
  std::vector<std::string> names_;
  std::map<std::string, int> numbers_;  // the last that was added to a name
  std::set<std::string> taken_;
};

}  // namespace
}  // namespace coda::graph_text

namespace coda {

std::string text(const Graph& graph, std::span<const NamedValue> outputs, std::string_view name) {
  for (const NamedValue& output : outputs)
    require(output.value.graph.get() == &graph, "text: an output is no value of the graph");
  return program::formatted(graph_text::GraphPrinter(graph, outputs).print(name),
                            graph_text::is_size);
}

}  // namespace coda
