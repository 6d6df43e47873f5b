// SPDX-License-Identifier: Apache-2.0
// The parser of program text (grammar: docs/program-text.md). Expressions make their steps as they
// are read, operands first and from left to right, so the order of steps is the order of the text.
// At a mistake the rest of its line is passed over and reading goes on, so that all mistakes of a
// text are told of at once. What follows from one is no second mistake: names that the line gives
// are known as failed, and a statement that needs one fails without a word.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/nearest_name.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "program/assembler.h"
#include "program/diagnostics.h"
#include "program/lexer.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxDepth = 200;     // of nested expressions: bad input must not exhaust the stack
constexpr int kMostSteps = 20000;  // no program of a person or of the compiler has a tenth of it

// Thrown where a statement cannot be read because of an earlier mistake.
struct FollowsFromMistake {};

std::string listed(const std::vector<std::string_view>& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + std::string(names[i]);
  return list;
}

// "; did you mean 'acc'?"
std::string meant(std::string_view name, const std::vector<std::string_view>& known) {
  const auto similar = similar_name(name, known);
  return similar ? "; did you mean '" + std::string(*similar) + "'?" : "";
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file)
      : text_(text), file_(file), tokens_(tokens_of(text)), diagnostics_(text) {}

  Program parse() {
    std::string program_name = "program";
    Place place;
    try {
      skip_lines();
      expect_word("program");
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
        if (!at_end()) throw mistake("a file holds one program; nothing may follow it");
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

  TensorMention lone_mention() {
    try {
      TensorMention result = mention();
      if (!at_end()) throw mistake("nothing may follow a tensor's name, shape and type");
      return result;
    } catch (const Mistake& mistake) {
      throw Error("tensor " + in_quotes(text_) + ": " + mistake.message);
    }
  }

 private:
  // Tokens.
  const Token& now() const { return tokens_[now_]; }
  const Token& next() { return tokens_[at_end() ? now_ : now_++]; }
  bool at_end() const { return now().kind == TokenKind::end; }
  static Place place_of(const Token& token) {
    return {token.offset, token.kind == TokenKind::line_end ? 1 : token.text.size()};
  }
  Place here() const { return place_of(now()); }
  // At the token that is read now. What is no token is a mistake of its own.
  Mistake mistake(const std::string& message) const {
    return {here(), now().mistake != nullptr ? now().mistake : message};
  }
  bool is(std::string_view sign) const {
    return now().kind == TokenKind::sign && now().text == sign;
  }
  bool is_word(std::string_view word) const {
    return now().kind == TokenKind::word && now().text == word;
  }
  bool take(std::string_view sign) {
    if (!is(sign)) return false;
    next();
    return true;
  }
  std::string found() const {
    if (at_end()) return "the text ends";
    if (now().kind == TokenKind::line_end) return "the line ends";
    return "there is " + in_quotes(now().text);
  }
  void expect(std::string_view sign) {
    if (!take(sign)) throw mistake("expected '" + std::string(sign) + "', " + found());
  }
  void expect_word(std::string_view word) {
    if (!is_word(word))
      throw mistake("expected '" + std::string(word) + "', " + found() +
                    "; a file begins with  program NAME {");
    next();
  }
  void skip_lines() {
    while (now().kind == TokenKind::line_end) next();
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
    const size_t start = now_;
    misses_tensor_ = false;
    try {
      statement();
      end_of_statement();
      return;
    } catch (const Mistake& mistake) {
      if (!misses_tensor_) diagnostics_.add(mistake);
    } catch (const FollowsFromMistake&) {
    }
    depth_ = 0;
    pass_over(start);
  }

  // Goes to the end of the line. The names of the failed statement, which begins at token `start`:
  // those that it gives have failed, and so have tensors that it would have been the first to name.
  void pass_over(size_t start) {
    const auto ends_here = [&] {
      if (at_end() || now().kind == TokenKind::line_end) return true;
      const TokenKind behind = tokens_[now_ + (at_end() ? 0 : 1)].kind;
      return is("}") && (behind == TokenKind::line_end || behind == TokenKind::end);
    };
    while (!ends_here()) next();
    size_t equals = start;
    while (equals < now_ &&
           (tokens_[equals].kind == TokenKind::word || tokens_[equals].text == ","))
      ++equals;
    const bool gives_names = equals < now_ && tokens_[equals].text == "=";
    for (size_t i = start; i < now_; ++i) {
      const Token& token = tokens_[i];
      if (token.kind != TokenKind::word && token.kind != TokenKind::name) continue;
      if (gives_names && i < equals) {
        values_.emplace(token.text, kFailed);
      } else if (!values_.contains(token.text) && !assembler_->knows(token.text)) {
        failed_tensors_.insert(token.text);
      }
    }
  }

  // Names, sizes, tensors.
  std::string name() {
    if (now().kind != TokenKind::word && now().kind != TokenKind::name)
      throw mistake("expected a name, " + found());
    return std::string(next().text);
  }
  std::string word(const char* what) {
    if (now().kind != TokenKind::word)
      throw mistake(std::string("expected ") + what + ", " + found());
    return std::string(next().text);
  }
  // A size: all tokens up to a comma or a closing sign.
  Dim dim() {
    constexpr size_t kLongest = 200;
    const size_t offset = now().offset;
    size_t stop = offset;
    while (!at_end() && now().kind != TokenKind::line_end && !is(",") && !is("]") && !is(")") &&
           !is("}")) {
      stop = now().offset + now().text.size();
      next();
    }
    const Place place{offset, stop - offset};
    std::string size(text_.substr(offset, stop - offset));
    if (size.empty() || size.size() > kLongest)
      throw Mistake{place, "expected a size: a number, a symbol or a sum such as 2*I + 4"};
    std::replace(size.begin(), size.end(), '\n', ' ');
    try {
      return Dim::parse(size);
    } catch (const Error& problem) {
      throw Mistake{place, problem.what()};
    }
  }
  DType dtype() {
    const Place place = here();
    const std::string name = word("a type");
    const auto type = dtype_by_name(name);
    if (!type)
      throw Mistake{place, "types are " + listed(type_names()) + meant(name, type_names())};
    return *type;
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
  int64_t integer() {
    const Token& token = now();
    int64_t value = 0;
    const auto [stop, problem] =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (token.kind != TokenKind::number || problem != std::errc() ||
        stop != token.text.data() + token.text.size()) {
      throw mistake("expected a whole number, " + found());
    }
    next();
    return value;
  }
  double number() {
    const Token& token = now();
    double value = std::numeric_limits<double>::infinity();
    if (!is_word("inf")) {
      const auto [stop, problem] =
          std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      if (problem != std::errc()) throw mistake("this number is out of range");
    }
    next();
    return value;
  }

  // Statements.
  void statement() {
    const Token start = now();
    const std::string first = word("a statement");
    if (is("(")) {
      if (first == "tensors") return tensor_order(place_of(start));
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

  void tensor_order(Place place) {
    std::vector<std::string> names;
    expect("(");
    if (!is(")")) {
      do names.push_back(name());
      while (take(","));
    }
    expect(")");
    make(place, [&] {
      assembler_->order_tensors(names);
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
    int value = product();
    while (is("+") || is("-")) {
      const Token sign = next();
      const int right = product();
      value = apply(place_of(sign), sign.text == "+" ? Elementwise::add : Elementwise::sub,
                    {value, right});
    }
    --depth_;
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
    if (const auto op = elementwise_by_name(function)) {
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
      const bool has_own_comma = argument == Argument::tile_options || argument == Argument::result;
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
      case Argument::tile_options: tile_options(m); break;
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

  SegmentMention segment() {
    SegmentMention segment;
    segment.a = mention();
    expect(",");
    segment.b = mention();
    if (take(",")) segment.layout = word("a layout (nn, nt, tn or tt)");
    return segment;
  }

  void tile_options(StepMention& m) {
    while (take(",")) {
      const Place place = here();
      const std::string option = word("rows= or repeat=");
      expect("=");
      if (option == "rows" && !m.row_index) {
        m.row_index = mention();
      } else if (option == "repeat") {
        *fields_of(m.step).repeat = integer();
      } else {
        throw Mistake{place,
                      "a tile takes rows= (an index of rows) and repeat= (of columns), each once" +
                          meant(option, {"rows", "repeat"})};
      }
    }
  }

  // Which result of a partial that has two.
  int lane(const PartialInfo& kind) {
    if (kind.lanes != 2) return 0;
    expect(",");
    const Place place = here();
    const std::string result = word("the result to take");
    const auto& [first, second] = kind.results;
    if (result != first && result != second) {
      throw Mistake{place, "a " + std::string(kind.name) + " partial gives " + std::string(first) +
                               " and " + std::string(second) + meant(result, {first, second})};
    }
    return result == second ? 1 : 0;
  }

  static constexpr int kFailed = -1;  // of a name whose definition is a mistake

  std::string_view text_;
  std::string_view file_;
  std::vector<Token> tokens_;
  Diagnostics diagnostics_;
  size_t now_ = 0;
  int depth_ = 0;
  Assembler* assembler_ = nullptr;
  std::map<std::string, int, std::less<>> values_;
  std::set<std::string_view> failed_tensors_;  // first named where a mistake is
  bool misses_tensor_ = false;                 // the statement names one of those
  std::vector<Place> places_;                  // of each step, in the text
};

}  // namespace

TensorMention parse_mention(std::string_view text) { return Parser(text, {}).lone_mention(); }

}  // namespace coda::program

namespace coda {

Program parse_program(std::string_view text, std::string_view file) {
  return program::Parser(text, file).parse();
}

}  // namespace coda
