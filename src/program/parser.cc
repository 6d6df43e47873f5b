// SPDX-License-Identifier: Apache-2.0
// The parser of program text (grammar: docs/program-text.md). Each value is a step, so steps have
// the order of the text.
#include <set>

#include "coda/error.h"
#include "coda/messages.h"
#include "coda/program_file.h"
#include "program/assembler.h"
#include "program/problem.h"
#include "program/statement_reader.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {
constexpr int kMostSteps = 20000;  // ten times the largest known program

class Parser final : private StatementReader {
 public:
  Parser(std::string_view text, std::string_view file) : StatementReader(text, file) {}

  Program parse() {
    refuse_other_word("graph",
                      "this is a graph, and a program is needed here: coda explain, run, check, "
                      "derive, emit, compile, tune and fmt take both");
    Assembler assembler(header("program", "a file begins with  program NAME {"));
    assembler_ = &assembler;
    body();
    if (diagnostics_.any()) diagnostics_.fail(file_);
    try {
      return assembler.finish();
    } catch (const Problems& problems) {
      const auto line = [&](int step) {
        return "line " + std::to_string(diagnostics_.line_of(places_[step]));
      };
      for (const auto& [step, message] : problems.all)
        diagnostics_.add({step >= 0 ? places_[step] : header_place_, with_places(message, line)});
      diagnostics_.fail(file_);
    }
  }

  auto lone(const auto& read) {
    try {
      auto result = read();
      if (!at_end()) throw mistake("nothing may follow a tensor's name, shape and type");
      return result;
    } catch (const Mistake& mistake) {
      throw Error("tensor " + in_quotes(text()) + ": " + mistake.message);
    }
  }

  TensorMention lone_mention() {
    return lone([&] { return mention(); });
  }
  OperandMention lone_operand() {
    return lone([&] { return operand(); });
  }

 private:
  int constant(double number) override { return assembler_->constant(number); }
  int elementwise(Elementwise op, std::vector<int> operands) override {
    return assembler_->elementwise(op, std::move(operands));
  }
  bool is_reserved(std::string_view name) const override { return program::is_reserved(name); }
  std::string remedy_for(const std::string& name) const override {
    if (is_size_symbol(name)) return "as a number the size is size(" + name + ")";
    return "a tensor is read by tile(" + name + "), per_row(" + name + "), per_column(" + name +
           ") or scalar(" + name + ")" + (is("[") ? "; a product is gemm(x[M, K], w[N, K])" : "");
  }
  void failed_mention(std::string_view name) override {
    if (!assembler_->knows(name)) failed_tensors_.insert(name);
  }

  // Whether the name is a size: whether it occurs inside square brackets in the text.
  bool is_size_symbol(std::string_view name) const {
    int depth = 0;
    for (const Token& token : all_tokens()) {
      if (token.kind == TokenKind::sign) depth += (token.text == "[") - (token.text == "]");
      if (depth > 0 && token.kind == TokenKind::word && token.text == name) return true;
    }
    return false;
  }

  int make(Place place, const std::function<int()>& action) override {
    if (assembler_->step_count() >= kMostSteps)
      throw Mistake{place, "a program has at most " + std::to_string(kMostSteps) + " steps"};
    const int step = StatementReader::make(place, action);
    places_.resize(assembler_->step_count(), place);
    return step;
  }

  TensorMention mention() {
    TensorMention result = StatementReader::mention();
    is_consequence_ =
        is_consequence_ || (result.dims.empty() && failed_tensors_.contains(result.name));
    return result;
  }

  void effect(const Token& start) override {
    const std::string word(start.text);
    if (word == "tensors" || word == "constants")
      return list_of_tensors(word == "tensors", place_of(start));
    const auto kind = step_by_word(word);
    if (!kind || !is_effect(*kind))
      throw Mistake{place_of(start), "a statement gives a value a name (z = ...) or is one of " +
                                         listed(effect_words()) + meant(word, effect_words())};
    expect("(");
    StepMention step = arguments(*kind, word);
    expect(")");
    make(place_of(start), [&] { return assembler_->make(step); });
  }

  void define_several(const std::vector<Token>& targets) override {
    if (targets.size() != 2 || !is_word("split_pairs"))
      throw mistake("only split_pairs gives values to several names, to two");
    const Token function = next();
    expect("(");
    StepMention step = arguments(*step_by_word(function.text), function.text);
    expect(")");
    for (int which = 0; which < 2; ++which) {
      if (targets[which].text == "_") continue;
      *fields_of(step.step).which = which;
      define(targets[which], make(place_of(function), [&] { return assembler_->make(step); }));
    }
  }

  // The order of all tensors, or the list of constants.
  void list_of_tensors(bool is_order, Place place) {
    std::vector<std::string> names;
    expect("(");
    if (!is(")")) {
      do names.push_back(name());
      while (take(","));
    }
    expect(")");
    make(place, [&] {
      if (is_order) {
        assembler_->order_tensors(names);
      } else {
        assembler_->mark_constants(names);
      }
      return -1;
    });
  }

  // The end of a message about a function that programs do not have, as NumPy and PyTorch do.
  static std::string other_way(std::string_view function) {
    for (const std::string_view product : {"matmul", "mm", "dot", "einsum", "linear"})
      if (function == product) return "; a product of matrices is gemm(x[M, K], w[N, K])";
    for (const std::string_view of_rows :
         {"sum", "mean", "var", "std", "amax", "logsumexp", "log_sum_exp", "softmax"})
      if (function == of_rows)
        return "; rows are reduced by row_partial(p, sum(z)) here, and by combine_rows(sum(p[M, "
               "N])) in a finalizer, a program behind this one";
    return meant(function, function_words());
  }

  int call(const Token& start) override {
    const std::string function(start.text);
    const Place place = place_of(start);
    const auto kind = step_by_word(function);
    if (kind && is_effect(*kind))
      throw Mistake{place, "'" + function + "' has no value; write it as a line of its own"};
    if (!kind)
      throw Mistake{place, "there is no function " + in_quotes(function) + other_way(function)};
    if (info(*kind).columns == ColumnChange::split) {
      throw Mistake{place, "split_pairs gives two values: write  a, b = split_pairs(...)"};
    }
    const StepMention step = arguments(*kind, function);
    return make(place, [&] { return assembler_->make(step); });
  }

  // The arguments, as the kind's table row describes.
  StepMention arguments(StepKind kind, std::string_view function) {
    StepMention step{.step = {.work = work_of(kind)}};
    bool is_first = true;
    for (const Argument argument : info(kind).arguments) {
      const bool has_own_comma = argument == Argument::tile_options ||
                                 argument == Argument::repeat || argument == Argument::result;
      if (argument == Argument::none) break;
      if (!is_first && !has_own_comma) expect(",");
      is_first = false;
      read(argument, function, step);
    }
    return step;
  }

  void read(Argument argument, std::string_view function, StepMention& m) {
    Step& step = m.step;
    const StepFields fields = fields_of(step);
    switch (argument) {
      case Argument::none: break;
      case Argument::value: step.operands.push_back(expression()); break;
      case Argument::segments:
        do m.segments.push_back(segment());
        while (take(";"));
        break;
      case Argument::tile:
      case Argument::per_row:
      case Argument::per_column:
      case Argument::scalar:
      case Argument::target:
      case Argument::transposed_target:
      case Argument::scalar_target: m.tensor = mention(); break;
      case Argument::tile_options: options(m, true); break;
      case Argument::repeat: options(m, false); break;
      case Argument::columns:
        if (!is(")")) m.columns = dim();
        break;
      case Argument::size: *fields.size = dim(); break;
      case Argument::pair_group: m.group = pair_group(); break;
      case Argument::group: *fields.group = dim(); break;
      case Argument::dtype: *fields.dtype = dtype(); break;
      case Argument::partial:
        m.partial =
            function == "combine_rows" ? TensorKind::row_partial : TensorKind::column_partial;
        *fields.partial = partial_kind();
        expect("(");
        m.tensor = mention();
        expect(")");
        break;
      case Argument::result: *fields.lane = lane(info(*fields.partial)); break;
      case Argument::reduction:
        *fields.partial = partial_kind();
        expect("(");
        step.operands.push_back(expression());
        expect(")");
        break;
    }
  }

  // scaled(x, scales) is not a word of the language, because it is only allowed as an operand.
  OperandMention operand() {
    OperandMention result{.tensor = stored_operand()};
    if (result.tensor.name != "scaled" || !result.tensor.dims.empty() || !take("(")) return result;
    result.tensor = stored_operand();
    expect(",");
    result.scales = stored_operand();
    expect(")");
    return result;
  }
  TensorMention stored_operand() {
    const TensorMention operand = mention();
    if (operand.name == "scaled" && is("(")) return operand;
    const auto value = values_.find(operand.name);
    if (value != values_.end() && value->second != kFailed && !assembler_->knows(operand.name))
      throw mistake(in_quotes(operand.name) +
                    " is a value of this program, and an operand of gemm is a stored matrix: store "
                    "it in a program before this one, which reads it");
    for (const char* computes : {"(", "+", "-", "*", "/"}) {
      if (is(computes))
        throw mistake(
            "an operand of gemm is a stored matrix, no computed value; store it in a program "
            "before");
    }
    return operand;
  }
  SegmentMention segment() {
    SegmentMention segment;
    segment.a = operand();
    expect(",");
    segment.b = operand();
    if (take(",")) segment.layout = word("a layout (nn, nt, tn or tt)");
    return segment;
  }

  void options(StepMention& m, bool of_tile) {
    Dim* repeat = fields_of(m.step).repeat;
    while (take(",")) {
      const Place place = here();
      const std::string option = word(of_tile ? "rows= or repeat=" : "repeat=");
      expect("=");
      if (of_tile && option == "rows" && !m.row_index) {
        m.row_index = mention();
      } else if (option == "repeat" && repeat->is(1)) {
        *repeat = dim();
      } else {
        throw Mistake{place, of_tile ? "a tile takes rows= (an index of rows) and repeat= (of "
                                       "columns), each once" +
                                           meant(option, {"rows", "repeat"})
                                     : "a vector of columns takes repeat=, once"};
      }
    }
  }

  // The result of a partial that has several.
  int lane(const PartialInfo& kind) {
    if (kind.lanes == 1) return 0;
    std::vector<std::string_view> known(kind.results.begin(), kind.results.begin() + kind.lanes);
    if (!kind.both.empty()) known.push_back(kind.both);
    std::string results = "a " + std::string(kind.name) + " partial gives " + listed(known);
    if (!kind.both.empty())
      results +=
          kind.lanes == 2 ? ", which is the whole: both added" : ", which is the first two added";
    if (!is(",")) throw mistake("expected ',' and the result to take, " + found() + "; " + results);
    next();
    const Place place = here();
    const std::string result = word("the result to take");
    if (result == kind.both) return kBothResults;
    for (int i = 0; i < kind.lanes; ++i)
      if (result == kind.results[static_cast<size_t>(i)]) return i;
    throw Mistake{place, results + meant(result, known)};
  }

  Assembler* assembler_ = nullptr;
  std::set<std::string_view> failed_tensors_;  // whose first mention is in a failed statement
  std::vector<Place> places_;                  // the position of each step in the text
};

}  // namespace

TensorMention parse_mention(std::string_view text) { return Parser(text, {}).lone_mention(); }
OperandMention parse_operand(std::string_view text) { return Parser(text, {}).lone_operand(); }

}  // namespace coda::program

namespace coda {

Program parse_program(std::string_view text, std::string_view file) {
  return program::Parser(text, file).parse();
}

// For each program, a copy of the text with the other programs blanked out, so that positions in
// error messages stay correct.
static std::vector<std::string> each_alone(std::string_view text) {
  const std::vector<program::Token> tokens = program::tokens_of(text);
  std::vector<size_t> starts;
  const auto is_line_end = [&](size_t i) { return tokens[i].kind == program::TokenKind::line_end; };
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    size_t brace = i + 2;
    while (is_line_end(brace)) ++brace;
    const bool begins_line = i == 0 || is_line_end(i - 1) || tokens[i - 1].text == "}";
    if (begins_line && tokens[i].text == "program" && tokens[brace].text == "{")
      starts.push_back(tokens[i].offset);
  }
  if (starts.size() < 2) return {std::string(text)};
  starts.front() = 0;
  starts.push_back(text.size());
  std::string blank(text);
  for (char& c : blank) c = c == '\n' ? c : ' ';
  std::vector<std::string> all;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const size_t length = starts[i + 1] - starts[i];
    all.push_back(blank.replace(starts[i], length, text.substr(starts[i], length)));
    for (size_t at = starts[i]; at < starts[i + 1]; ++at) blank[at] = text[at] == '\n' ? '\n' : ' ';
  }
  return all;
}

std::vector<Program> parse_programs(std::string_view text, std::string_view file) {
  std::vector<Program> programs;
  std::vector<Diagnostic> mistakes;
  for (const std::string& one : each_alone(text)) {
    try {
      programs.push_back(parse_program(one, file));
    } catch (const ProgramError& error) {
      mistakes.insert(mistakes.end(), error.mistakes().begin(), error.mistakes().end());
    }
  }
  if (!mistakes.empty()) throw ProgramError(file, std::move(mistakes));
  return programs;
}

}  // namespace coda
