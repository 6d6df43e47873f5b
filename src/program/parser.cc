// SPDX-License-Identifier: Apache-2.0
// The parser of program text (grammar: docs/program-text.md). Expressions make their steps as they
// are read, operands first and from left to right, so the order of steps is the order of the text.
// At a mistake the rest of its line is passed over and reading goes on, so that all mistakes of a
// text are told of at once. What follows from one is no second mistake: names that the line gives
// are known as failed, and a statement that needs one fails without a word.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "coda/error.h"
#include "coda/messages.h"
#include "program/assembler.h"
#include "program/diagnostics.h"
#include "program/problem.h"
#include "program/token_reader.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxDepth = 200;  // of nested expressions: bad input must not exhaust the stack
constexpr std::string_view kComparisons[] = {"<", "<=", ">", ">=", "==", "!="};
constexpr int kMostSteps = 20000;  // no program of a person or of the compiler has a tenth of it

// Thrown where a statement cannot be read because of an earlier mistake.
struct FollowsFromMistake {};

class Parser : private TokenReader {
 public:
  Parser(std::string_view text, std::string_view file)
      : TokenReader(text), file_(file), diagnostics_(text) {}

  Program parse() {
    std::string program_name = "program";
    Place place;
    try {
      skip_lines();
      expect_program();
      place = here();
      program_name = name();
      skip_lines();
      expect("{");
    } catch (const Mistake& mistake) {
      diagnostics_.add(mistake);
      while (!at_end() && !is("{")) next();
      take("{");
    }
    Assembler assembler(program_name);
    assembler_ = &assembler;
    skip_lines();
    while (!is("}") && !at_end() && !diagnostics_.is_full()) {
      line();
      skip_lines();
    }
    if (!diagnostics_.is_full()) {
      try {
        expect("}");
        skip_lines();
        if (!at_end())
          throw mistake("a file holds one program; give further ones as files of their own");
      } catch (const Mistake& mistake) {
        if (!diagnostics_.any()) diagnostics_.add(mistake);
      }
    }
    if (diagnostics_.any()) diagnostics_.fail(file_);
    try {
      return assembler.finish();
    } catch (const Problems& problems) {
      const auto line = [&](int step) {
        return "line " + std::to_string(diagnostics_.line_of(places_[step]));
      };
      for (const auto& [step, message] : problems.all)
        diagnostics_.add({step >= 0 ? places_[step] : place, with_places(message, line)});
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
  void expect_program() {
    if (!is_word("program"))
      throw mistake("expected 'program', " + found() + "; a file begins with  program NAME {");
    next();
  }
  void end_of_statement() {
    if (is("}") || now().kind == TokenKind::line_end) return;
    throw mistake("expected the end of the line, " + found());
  }

  // Makes one or more steps; they stand at `place`.
  int make(Place place, const std::function<int()>& action) {
    if (assembler_->step_count() >= kMostSteps)
      throw Mistake{place, "a program has at most " + std::to_string(kMostSteps) + " steps"};
    try {
      const int step = action();
      places_.resize(assembler_->step_count(), place);
      return step;
    } catch (const Problem& problem) {
      throw Mistake{place, problem.message};
    } catch (const Error& problem) {
      throw Mistake{place, problem.what()};
    }
  }

  // A statement and the end of its line.
  void line() {
    const size_t start = position();
    misses_tensor_ = false;
    try {
      statement();
      end_of_statement();
      return;
    } catch (const Mistake& mistake) {
      if (!misses_tensor_) diagnostics_.add(mistake);
    } catch (const FollowsFromMistake&) {
      misses_tensor_ = false;  // nothing is to be said of this line
    }
    depth_ = 0;
    pass_over(start);
  }

  // Goes to the end of the line. The names of the failed statement, which begins at token `start`:
  // those that it gives have failed, and so have tensors that it would have been the first to name.
  void pass_over(size_t start) {
    skip_line();
    const std::span<const Token> tokens = tokens_from(start);
    size_t equals = 0;
    while (equals < tokens.size() &&
           (tokens[equals].kind == TokenKind::word || tokens[equals].text == ","))
      ++equals;
    const bool gives_names = equals < tokens.size() && tokens[equals].text == "=";
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Token& token = tokens[i];
      if (token.kind != TokenKind::word && token.kind != TokenKind::name) continue;
      if (gives_names && i < equals) {
        values_.emplace(token.text, kFailed);
      } else if (!values_.contains(token.text) && !assembler_->knows(token.text)) {
        failed_tensors_.insert(token.text);
      }
    }
  }

  TensorMention mention() {
    TensorMention result;
    result.name = name();
    misses_tensor_ = misses_tensor_ || (!is("[") && failed_tensors_.contains(result.name));
    if (take("[")) {
      result.dims.push_back(dim());
      if (take(",")) result.dims.push_back(dim());
      expect("]");
    }
    if (take(":")) result.dtype = dtype();
    return result;
  }

  // Statements.
  void statement() {
    const Token start = now();
    const std::string first = word("a statement");
    if (is("(")) {
      if (first == "tensors" || first == "constants")
        return list_of_tensors(first == "tensors", place_of(start));
      const auto kind = step_by_word(first);
      if (kind && is_effect(*kind)) return effect(*kind, first, place_of(start));
      throw Mistake{place_of(start), "a statement gives a value a name (z = ...) or is one of " +
                                         listed(effect_words()) + meant(first, effect_words())};
    }
    std::vector<Token> targets = {start};
    while (take(",")) {
      targets.push_back(now());
      word("a name");
    }
    expect("=");
    for (const Token& target : targets) check_target(target, targets.size() == 2);
    if (targets.size() == 1) {
      const int value = expression();
      values_[std::string(targets[0].text)] = value;
      return;
    }
    if (targets.size() != 2 || !is_word("split_pairs"))
      throw mistake("only split_pairs gives values to several names, to two");
    if (targets[0].text == targets[1].text && targets[0].text != "_")
      throw Mistake{place_of(targets[1]), "the members of a pair need two names"};
    const Token function = next();
    expect("(");
    StepMention step = arguments(*step_by_word(function.text), function.text);
    expect(")");
    for (int which = 0; which < 2; ++which) {
      const Token& target = targets[which];
      if (target.text == "_") continue;
      *fields_of(step.step).which = which;
      values_[std::string(target.text)] =
          make(place_of(function), [&] { return assembler_->make(step); });
    }
  }

  void check_target(const Token& target, bool is_member) {
    const std::string name(target.text);
    if (name == "_" && is_member) return;
    if (!is_identifier(name) || is_reserved(name)) {
      throw Mistake{place_of(target),
                    in_quotes(name) +
                        " cannot name a value; use letters, digits and _, and no function's name"};
    }
    const auto earlier = values_.find(name);
    if (earlier != values_.end() && earlier->second != kFailed)
      throw Mistake{place_of(target),
                    in_quotes(name) + " has a value already; a name is given once"};
  }

  // The order of all, or which are constants.
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

  void effect(StepKind kind, const std::string& function, Place place) {
    expect("(");
    StepMention step = arguments(kind, function);
    expect(")");
    make(place, [&] { return assembler_->make(step); });
  }

  PartialKind partial_kind() {
    const Place place = here();
    const std::string name = word("a kind of reduction");
    const auto kind = partial_by_name(name);
    if (kind) return *kind;
    std::vector<std::string_view> known;
    for (int i = 0; i < kPartialKindCount; ++i)
      known.push_back(info(static_cast<PartialKind>(i)).name);
    throw Mistake{place, "reductions are " + listed(known) + meant(name, known)};
  }

  // Expressions.
  int expression() {
    if (++depth_ > kMaxDepth)
      throw mistake("expressions are nested too deeply; name a part of this one");
    const int left = sum();
    --depth_;
    const auto comparison = [&] {
      return std::find(std::begin(kComparisons), std::end(kComparisons), now().text);
    };
    if (now().kind != TokenKind::sign || comparison() == std::end(kComparisons)) return left;
    const Token sign = next();
    const int right = sum();
    if (now().kind == TokenKind::sign && comparison() != std::end(kComparisons))
      throw mistake("comparisons do not follow one another; write where(a < b, b < c, 0)");
    const bool is_turned = sign.text[0] == '>';
    const Elementwise op = sign.text == "=="       ? Elementwise::equal
                           : sign.text == "!="     ? Elementwise::not_equal
                           : sign.text.size() == 2 ? Elementwise::less_equal
                                                   : Elementwise::less;
    return apply(place_of(sign), op,
                 is_turned ? std::vector{right, left} : std::vector{left, right});
  }
  int sum() {
    int value = product();
    while (is("+") || is("-")) {
      const Token sign = next();
      const int right = product();
      value = apply(place_of(sign), sign.text == "+" ? Elementwise::add : Elementwise::sub,
                    {value, right});
    }
    return value;
  }
  int product() {
    int value = unary();
    while (is("*") || is("/")) {
      const Token sign = next();
      const int right = unary();
      value = apply(place_of(sign), sign.text == "*" ? Elementwise::mul : Elementwise::div,
                    {value, right});
    }
    return value;
  }
  int unary() {
    if (!is("-")) return primary();
    const Place place = place_of(next());
    if (now().kind == TokenKind::number || is_word("inf")) {
      const double value = -number();
      return make(place, [&] { return assembler_->constant(value); });
    }
    if (++depth_ > kMaxDepth)
      throw mistake("expressions are nested too deeply; name a part of this one");
    const int operand = unary();
    --depth_;
    return apply(place, Elementwise::neg, {operand});
  }
  int apply(Place place, Elementwise op, std::vector<int> operands) {
    return make(place, [&] { return assembler_->elementwise(op, std::move(operands)); });
  }

  int primary() {
    const Token start = now();
    if (start.kind == TokenKind::number || is_word("inf")) {
      const double value = number();
      return make(place_of(start), [&] { return assembler_->constant(value); });
    }
    if (take("(")) {
      const int value = expression();
      expect(")");
      return value;
    }
    const std::string word = this->word("a value");
    if (take("(")) {
      const int value = call(word, place_of(start));
      expect(")");
      return value;
    }
    return named_value(word, place_of(start));
  }

  int named_value(const std::string& name, Place place) {
    const auto value = values_.find(name);
    if (value != values_.end()) {
      if (value->second == kFailed) throw FollowsFromMistake();
      return value->second;
    }
    std::vector<std::string_view> known;
    for (const auto& [other, step] : values_) {
      if (step != kFailed) known.push_back(other);
    }
    const std::string reads = "a tensor is read by tile(" + name + "), per_row(" + name +
                              "), per_column(" + name + ") or scalar(" + name + ")";
    const std::string similar = meant(name, known);
    values_.emplace(name, kFailed);  // each name is told of once
    throw Mistake{place, in_quotes(name) + " has no value yet" +
                             (similar.empty() ? "; " + reads : similar + " (" + reads + ")")};
  }

  int call(const std::string& function, Place place) {
    if (const auto op = operation_by_word(function)) {
      std::vector<int> operands;
      do operands.push_back(expression());
      while (take(","));
      return apply(place, *op, std::move(operands));
    }
    const auto kind = step_by_word(function);
    if (kind && is_effect(*kind))
      throw Mistake{place, "'" + function + "' has no value; write it as a line of its own"};
    if (!kind)
      throw Mistake{
          place, "there is no function " + in_quotes(function) + meant(function, function_words())};
    if (info(*kind).columns == ColumnChange::split) {
      throw Mistake{place, "split_pairs gives two values: write  a, b = split_pairs(...)"};
    }
    const StepMention step = arguments(*kind, function);
    return make(place, [&] { return assembler_->make(step); });
  }

  // What stands between the brackets, as the kind's row says.
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
      case Argument::pair_group:
        if (is_word("concatenated")) {
          next();
        } else if (is_word("interleaved")) {
          next();
          m.group = 2;
        } else {
          m.group = dim();
        }
        break;
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

  // scaled(x, scales): no word of its own, for only an operand may stand here.
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

  // Which result of a partial that has two.
  int lane(const PartialInfo& kind) {
    if (kind.lanes != 2) return 0;
    std::vector<std::string_view> known(kind.results.begin(), kind.results.end());
    if (!kind.both.empty()) known.push_back(kind.both);
    const std::string results = "a " + std::string(kind.name) + " partial gives " + listed(known) +
                                (kind.both.empty() ? "" : ", which is the whole: both added");
    if (!is(",")) throw mistake("expected ',' and the result to take, " + found() + "; " + results);
    next();
    const Place place = here();
    const std::string result = word("the result to take");
    if (result == kind.both) return kBothResults;
    if (result == kind.results[0]) return 0;
    if (result == kind.results[1]) return 1;
    throw Mistake{place, results + meant(result, known)};
  }

  static constexpr int kFailed = -1;  // of a name whose definition is a mistake

  std::string_view file_;
  Diagnostics diagnostics_;
  int depth_ = 0;
  Assembler* assembler_ = nullptr;
  std::map<std::string, int, std::less<>> values_;
  std::set<std::string_view> failed_tensors_;  // first named where a mistake is
  bool misses_tensor_ = false;                 // the statement names one of those
  std::vector<Place> places_;                  // of each step, in the text
};

}  // namespace

TensorMention parse_mention(std::string_view text) { return Parser(text, {}).lone_mention(); }
OperandMention parse_operand(std::string_view text) { return Parser(text, {}).lone_operand(); }

}  // namespace coda::program

namespace coda {

Program parse_program(std::string_view text, std::string_view file) {
  return program::Parser(text, file).parse();
}

}  // namespace coda
