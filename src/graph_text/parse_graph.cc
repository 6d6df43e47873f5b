// SPDX-License-Identifier: Apache-2.0
// The parser of a graph's text (grammar: docs/program-text.md): what its words mean. Each value is
// a node, made by the builder of its operation.
#include <algorithm>
#include <set>

#include "coda/error.h"
#include "coda/graph_text.h"
#include "coda/messages.h"
#include "coda/operation.h"
#include "graph_text/graph_words.h"
#include "ir/rebuild.h"
#include "program/statement_reader.h"
#include "program/vocabulary.h"

namespace coda::graph_text {
namespace {

using program::listed;
using program::meant;
using program::Mistake;
using program::Place;
using program::place_of;
using program::TensorMention;
using program::Token;
using program::TokenKind;

constexpr int kMostNodes = 100000;  // of one text: a deep model's training step has a tenth of it

class GraphParser final : private program::StatementReader {
 public:
  GraphParser(std::string_view text, std::string_view file) : StatementReader(text, file) {}

  NamedGraph parse() {
    refuse_other_word("program", "this is a program, and a graph is needed here");
    result_.name = header("graph", "the file of a graph begins with  graph NAME {");
    body();
    if (!diagnostics_.any()) {
      for (const auto& [name, place] : unread_)
        diagnostics_.add({place, in_quotes(name) + " is not used; store it (store(" + name + ", " +
                                     name + ")) or leave it out"});
      if (result_.outputs.empty())
        diagnostics_.add({header_place_, "the graph stores nothing; add  store(NAME, value)"});
    }
    if (diagnostics_.any()) diagnostics_.fail(file_);
    return std::move(result_);
  }

 private:
  // What stands between the brackets of a function that makes one value, or the members of pairs.
  struct Call {
    Node node;
    std::vector<Value> operands{};
  };

  Graph& graph() { return result_.graph; }

  int constant(double number) override { return graph().constant(number).id; }
  int elementwise(Elementwise op, std::vector<int> operands) override {
    std::vector<Value> all;
    for (const int id : operands) all.push_back(graph().value(id));
    return coda::elementwise(op, std::move(all)).id;
  }
  bool is_reserved(std::string_view name) const override { return is_reserved_in_graph(name); }
  bool may_be_quoted() const override { return true; }
  std::string remedy_for(const std::string& name) const override {
    return "an input is declared first:  " + name + " = input(" + name +
           "[M, N]), or parameter, or table";
  }
  int make(Place place, const std::function<int()>& action) override {
    if (graph().size() > kMostNodes)
      throw Mistake{place,
                    "a graph has at most " + std::to_string(kMostNodes) + " values, as text"};
    return StatementReader::make(place, action);
  }

  // ---- Statements.

  void effect(const Token& start) override {
    const std::string word(start.text);
    if (word != kStore)
      throw Mistake{
          place_of(start),
          word == "row_partial" || word == "column_partial"
              ? "a graph has no partials: y = reduce_rows(sum(x)), or reduce_columns, is the whole "
                "reduction"
              : "a statement gives a value a name (z = ...) or is store(NAME, value)" +
                    meant(word, {kStore})};
    expect("(");
    const Place place = here();
    const TensorMention output = mention();
    expect(",");
    const Value value = graph().value(expression());
    expect(")");
    const std::string what = "output " + in_quotes(output.name);
    if (!stored_.insert(output.name).second)
      throw Mistake{place, what + " is stored already; give this one another name"};
    if (output.dims.size() == 1 ||
        (output.dims.size() == 2 && Shape{output.dims[0], output.dims[1]} != value.shape()))
      throw Mistake{place, what + " has the shape of its value, " + value.shape().text() +
                               "; it need not be written"};
    result_.outputs.push_back({output.name, value, output.dtype});
  }

  void define_several(const std::vector<Token>& targets) override {
    const Token function = now();
    if (function.kind != TokenKind::word && function.kind != TokenKind::name)
      throw mistake("expected a function that gives several values, " + found());
    next();
    expect("(");
    const GraphWord* word =
        function.kind == TokenKind::word ? find_graph_word(function.text) : nullptr;
    if (word == nullptr || word->op != Op::split_pair) {
      const std::vector<int> values = product(function, 0);
      expect(")");
      need_targets(function, values.size(), targets.size());
      for (size_t i = 0; i < values.size(); ++i) define(targets[i], values[i]);
      return;
    }
    Call call = arguments(*word);
    expect(")");
    need_targets(function, 2, targets.size());
    for (int which = 0; which < 2; ++which) {
      if (targets[static_cast<size_t>(which)].text == "_") continue;
      call.node.which = which;
      define(targets[static_cast<size_t>(which)], build(place_of(function), call));
    }
  }

  static void need_targets(const Token& function, size_t values, size_t targets) {
    if (values == targets) return;
    throw Mistake{place_of(function),
                  in_quotes(function.text) + " gives " + std::to_string(values) +
                      (values == 1 ? " value" : " values") + ", and " + std::to_string(targets) +
                      " names stand here; _ stands for a value that is not wanted"};
  }

  // ---- Functions.

  int call(const Token& start) override {
    const GraphWord* word = start.kind == TokenKind::word ? find_graph_word(start.text) : nullptr;
    if (word == nullptr || word->op == Op::matmul) {
      const std::vector<int> values = product(start, 0);
      if (values.size() == 1) return values[0];
      throw Mistake{place_of(start), in_quotes(start.text) + " gives " +
                                         std::to_string(values.size()) +
                                         " values: write  a, b = ...  with a name for each, or _"};
    }
    if (word->op == Op::split_pair)
      throw Mistake{place_of(start),
                    "split_pairs gives two values: write  a, b = split_pairs(...)"};
    return build(place_of(start), arguments(*word));
  }

  int build(Place place, const Call& call) {
    return make(place, [&] { return rebuild(graph(), call.node, call.operands).id; });
  }

  Call arguments(const GraphWord& word) {
    Call call{.node = {.op = word.op, .kind = word.kind}};
    bool is_first = true;
    for (const GraphArgument argument : word.arguments) {
      if (argument == GraphArgument::none) break;
      if (!is_first) expect(",");
      is_first = false;
      read(argument, call);
    }
    return call;
  }

  void read(GraphArgument argument, Call& call) {
    Node& node = call.node;
    const auto operand = [&] { call.operands.push_back(graph().value(expression())); };
    switch (argument) {
      case GraphArgument::none: return;
      case GraphArgument::tensor: return read_input(node);
      case GraphArgument::value: return operand();
      case GraphArgument::values:
        for (const int id : values()) call.operands.push_back(graph().value(id));
        return;
      case GraphArgument::segments:
        do segment(call);
        while (take(";"));
        return;
      case GraphArgument::reduction:
        node.reduction = partial_kind();
        expect("(");
        operand();
        expect(")");
        return;
      case GraphArgument::pair_group: {
        const program::PairGroup group = pair_group();
        node.dim = group
                       ? *group
                       : static_cast<int64_t>(call.operands.size()) * call.operands[0].shape().cols;
        return;
      }
      case GraphArgument::dim: node.dim = dim(); return;
      case GraphArgument::columns: node.shape.cols = dim(); return;
      case GraphArgument::repeat: node.repeat = dim(); return;
    }
  }

  void read_input(Node& node) {
    const Place place = here();
    const TensorMention tensor = mention();
    const std::string what = "input " + in_quotes(tensor.name);
    if (tensor.dims.size() == 1)
      throw Mistake{place, what +
                               " has two sizes: [M, 1] is a value for each row, [1, N] one for "
                               "each column, and a scalar has none"};
    if (graph().find_input(tensor.name) >= 0)
      throw Mistake{place, what + " is declared already; give its value a name and use that"};
    node.name = tensor.name;
    if (!tensor.dims.empty()) node.shape = {tensor.dims[0], tensor.dims[1]};
    node.dtype = tensor.dtype.value_or(DType::f32);
  }

  void segment(Call& call) {
    const Place place = here();
    const Value a = graph().value(expression());
    expect(",");
    const Value b = graph().value(expression());
    call.operands.insert(call.operands.end(), {a, b});
    if (take(",")) {
      const Place at = here();
      const std::string layout = word("a layout (nn, nt, tn or tt)");
      if (layout != "nn" && layout != "nt" && layout != "tn" && layout != "tt")
        throw Mistake{at, "the layout of a gemm is nn, nt, tn or tt (t: stored transposed), not " +
                              in_quotes(layout)};
      call.node.transposes.push_back({layout[0] == 't', layout[1] == 't'});
      return;
    }
    std::vector<Transposes> fitting;
    for (const Transposes t :
         {Transposes{false, false}, {false, true}, {true, false}, {true, true}}) {
      if ((t.a ? a.shape().rows : a.shape().cols) == (t.b ? b.shape().cols : b.shape().rows))
        fitting.push_back(t);
    }
    if (fitting.size() != 1)
      throw Mistake{place, "operands of " + a.shape().text() + " and " + b.shape().text() +
                               (fitting.empty()
                                    ? " share no size to contract"
                                    : " share more than one size; add the layout, nn, nt, tn or tt "
                                      "(t: stored transposed), after them")};
    call.node.transposes.push_back(fitting[0]);
  }

  // A gemm, a call of an operation, or one of these once more: its values.
  std::vector<int> product(const Token& start, int which) {
    const GraphWord* word = start.kind == TokenKind::word ? find_graph_word(start.text) : nullptr;
    if (word != nullptr && word->op == Op::matmul) {
      Call call = arguments(*word);
      call.node.which = which;
      return {build(place_of(start), call)};
    }
    if (start.kind == TokenKind::word && start.text == kAgain) {
      const Token inner = now();
      if (inner.kind != TokenKind::word && inner.kind != TokenKind::name)
        throw mistake("expected gemm or an operation, " + found());
      if (which >= kMostAgain) throw mistake("nothing is made as often as that");
      next();
      expect("(");
      std::vector<int> values =
          inner.text == "add" ? std::vector{copy(place_of(inner))} : product(inner, which + 1);
      expect(")");
      return values;
    }
    return operation(start, which);
  }

  // again(add(x, 0)): a node of its own, which add makes none of.
  int copy(Place place) {
    const std::vector<int> operands = values();
    return make(place, [&] {
      require(operands.size() == 2 && graph().node(operands[1]).op == Op::constant &&
                  graph().node(operands[1]).number == 0,
              "only add(x, 0) is recomputed");
      return graph().intern({.op = Op::elementwise,
                             .shape = graph().node(operands[0]).shape,
                             .operands = operands,
                             .fn = Elementwise::add});
    });
  }

  const Operation& find(const Token& start) {
    try {
      return find_operation(start.text);
    } catch (const Error& unknown) {
      const std::string name(start.text);
      std::string message = "there is no function " + in_quotes(name);
      if (name == kStore) {
        message = "'store' has no value; write it as a line of its own";
      } else if (find_graph_word(name) != nullptr || program::operation_by_word(name)) {
        message = in_quotes(name) + " gives one value and is no operation";
      } else if (name == "tile" || name == "per_row" || name == "per_column" || name == "scalar") {
        message = "a graph reads no tensors: an input is declared, as in  x = input(x[M, N])";
      } else if (name == "combine_rows" || name == "combine_columns") {
        message =
            "a graph has no partials: reduce_rows(sum(x)), or reduce_columns, is the whole "
            "reduction";
      } else if (name == "reduce_vector") {
        message = "in a graph reduce_rows(sum(v)), or reduce_columns, sums a vector";
      } else if (program::step_by_word(name)) {
        message = in_quotes(name) + " is a word of programs and has no counterpart in a graph";
      } else if (const std::string similar = meant(name, graph_functions()); !similar.empty()) {
        message += similar;
      } else {
        message += ", and " + std::string(unknown.what());
      }
      throw Mistake{place_of(start), message};
    }
  }

  std::vector<int> operation(const Token& start, int which) {
    const Operation& called = find(start);
    std::vector<Value> operands;
    std::map<std::string, double> attributes;
    std::map<std::string, Dim> sizes;
    bool has_options = false;
    do {
      has_options = has_options || is_option();
      if (has_options) {
        option(called, attributes, sizes);
      } else {
        operands.push_back(graph().value(expression()));
      }
    } while (take(","));
    std::vector<int> ids;
    make(place_of(start), [&] {
      for (const Value& v : opaque_call(called.name, operands, attributes, sizes))
        ids.push_back(which == 0 ? v.id : once_more(v.id, which));
      return ids.front();
    });
    return ids;
  }

  void option(const Operation& called, std::map<std::string, double>& attributes,
              std::map<std::string, Dim>& sizes) {
    const Place place = here();
    const std::string name = word("an option (heads=8)");
    std::vector<std::string_view> known(called.sizes.begin(), called.sizes.end());
    for (const auto& [attribute, preset] : called.attributes) known.push_back(attribute);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Mistake{place, in_quotes(called.name) +
                               (known.empty() ? " has no options" : " has " + listed(known)) +
                               meant(name, known)};
    if (attributes.contains(name) || sizes.contains(name))
      throw Mistake{place, in_quotes(name) + " is given twice"};
    expect("=");
    if (!called.attributes.contains(name)) {
      sizes[name] = dim();
      return;
    }
    const bool is_negative = take("-");
    if (!is_number()) throw mistake("expected a number, " + found());
    const double value = number();
    attributes[name] = is_negative ? -value : value;
  }

  // A result of a recomputed call.
  int once_more(int id, int which) {
    Node result = graph().node(id);
    Node call = graph().node(result.operands[0]);
    call.which = which;
    result.operands = {graph().intern(std::move(call))};
    return graph().intern(std::move(result));
  }

  static constexpr int kMostAgain = 100;

  NamedGraph result_;
  std::set<std::string> stored_;
};

}  // namespace
}  // namespace coda::graph_text

namespace coda {

NamedGraph parse_graph(std::string_view text, std::string_view file) {
  return graph_text::GraphParser(text, file).parse();
}

}  // namespace coda
