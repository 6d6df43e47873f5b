// SPDX-License-Identifier: Apache-2.0
// The parser of program text (grammar: docs/program-text.md). Expressions make their steps as they
// are read, operands first and from left to right, so the order of steps is the order of the text.
// Every Problem gets the place it came from.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "coda/error.h"
#include "program/assembler.h"
#include "program/lexer.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxDepth = 200;  // of nested expressions: bad input must not exhaust the stack

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), tokens_(tokens_of(text)) {}

  Program parse() {
    skip_lines();
    expect_word("program");
    const Token name_token = now();
    Assembler assembler(name());
    assembler_ = &assembler;
    skip_lines();
    expect("{");
    skip_lines();
    while (!is("}")) {
      statement();
      if (!is("}")) end_of_statement();
      skip_lines();
    }
    expect("}");
    skip_lines();
    if (now().kind != TokenKind::end)
      throw error("a file holds one program; nothing may follow it");
    try {
      return assembler.finish();
    } catch (const Problem& problem) {
      const size_t offset = problem.step >= 0 ? places_[problem.step] : name_token.offset;
      throw error_at(text_, offset, problem.message);
    }
  }

  TensorMention lone_mention() {
    TensorMention result = mention();
    if (now().kind != TokenKind::end)
      throw error("nothing may follow a tensor's name, shape and type");
    return result;
  }

 private:
  // Tokens.
  const Token& now() const { return tokens_[now_]; }
  const Token& next() { return tokens_[now().kind == TokenKind::end ? now_ : now_++]; }
  Error error(const std::string& message) const { return error_at(text_, now().offset, message); }
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
    if (now().kind == TokenKind::end) return "the text ends";
    if (now().kind == TokenKind::line_end) return "the line ends";
    return "there is '" + std::string(now().text) + "'";
  }
  void expect(std::string_view sign) {
    if (!take(sign)) throw error("expected '" + std::string(sign) + "', " + found());
  }
  void expect_word(std::string_view word) {
    if (!is_word(word)) throw error("expected '" + std::string(word) + "', " + found());
    next();
  }
  void skip_lines() {
    while (now().kind == TokenKind::line_end) next();
  }
  void end_of_statement() {
    if (now().kind != TokenKind::line_end) throw error("expected the end of the line, " + found());
  }

  // Makes one or more steps; they stand at `offset`.
  int make(size_t offset, const std::function<int()>& action) {
    try {
      const int step = action();
      places_.resize(assembler_->step_count(), offset);
      return step;
    } catch (const Problem& problem) {
      throw error_at(text_, offset, problem.message);
    } catch (const Error& problem) {
      throw error_at(text_, offset, problem.what());
    }
  }

  // Names, sizes, tensors.
  std::string name() {
    if (now().kind != TokenKind::word && now().kind != TokenKind::name)
      throw error("expected a name, " + found());
    return std::string(next().text);
  }
  std::string word(const char* what) {
    if (now().kind != TokenKind::word)
      throw error(std::string("expected ") + what + ", " + found());
    return std::string(next().text);
  }
  // A size: all tokens up to a comma or a closing sign.
  Dim dim() {
    const size_t offset = now().offset;
    size_t stop = offset;
    while (now().kind != TokenKind::end && now().kind != TokenKind::line_end && !is(",") &&
           !is("]") && !is(")") && !is("}")) {
      stop = now().offset + now().text.size();
      next();
    }
    try {
      return Dim::parse(text_.substr(offset, stop - offset));
    } catch (const Error& problem) {
      throw error_at(text_, offset, problem.what());
    }
  }
  DType dtype() {
    const size_t offset = now().offset;
    const auto type = dtype_by_name(word("a type"));
    if (!type) throw error_at(text_, offset, "types are f32, bf16, f16, f64, i32, e4m3 and e5m2");
    return *type;
  }
  TensorMention mention() {
    TensorMention result;
    result.name = name();
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
      throw error("expected a whole number, " + found());
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
      if (problem != std::errc()) throw error("this number is out of range");
    }
    next();
    return value;
  }

  // Statements.
  void statement() {
    const Token start = now();
    const std::string first = word("a statement");
    if (is("(")) {
      if (first == "tensors") return tensor_order(start.offset);
      const auto kind = step_by_word(first);
      if (kind && is_effect(*kind)) return effect(*kind, first, start.offset);
      throw error_at(text_, start.offset,
                     "a statement gives a value a name (z = ...) or is one of store, row_partial, "
                     "column_partial, store_transposed, abs_max_into");
    }
    std::vector<Token> targets = {start};
    while (take(",")) {
      targets.push_back(now());
      word("a name");
    }
    expect("=");
    for (const Token& target : targets) {
      const std::string text(target.text);
      if (text == "_" && targets.size() == 2) continue;
      if (!is_identifier(text) || is_reserved(text)) {
        throw error_at(
            text_, target.offset,
            "'" + text +
                "' cannot name a value; use letters, digits and _, and no function's name");
      }
      if (values_.contains(text))
        throw error_at(text_, target.offset,
                       "'" + text + "' has a value already; a name is given once");
    }
    if (targets.size() == 1) {
      const int value = expression();
      values_.emplace(targets[0].text, value);
      return;
    }
    if (targets.size() != 2 || !is_word("split_pairs"))
      throw error("only split_pairs gives values to several names, to two");
    if (targets[0].text == targets[1].text)
      throw error_at(text_, targets[1].offset, "the members of a pair need two names");
    const Token function = next();
    expect("(");
    StepMention step = arguments(*step_by_word(function.text), function.text);
    expect(")");
    for (int which = 0; which < 2; ++which) {
      const Token& target = targets[which];
      if (target.text == "_") continue;
      *fields_of(step.step).which = which;
      values_.emplace(target.text, make(function.offset, [&] { return assembler_->make(step); }));
    }
  }

  void tensor_order(size_t offset) {
    std::vector<std::string> names;
    expect("(");
    if (!is(")")) {
      do names.push_back(name());
      while (take(","));
    }
    expect(")");
    make(offset, [&] {
      assembler_->order_tensors(names);
      return -1;
    });
  }

  void effect(StepKind kind, const std::string& function, size_t offset) {
    expect("(");
    StepMention step = arguments(kind, function);
    expect(")");
    make(offset, [&] { return assembler_->make(step); });
  }

  PartialKind partial_kind() {
    const size_t offset = now().offset;
    const auto kind = partial_by_name(word("a kind of reduction"));
    if (kind) return *kind;
    std::string known;
    for (int i = 0; i < kPartialKindCount; ++i) {
      const bool is_last = i + 1 == kPartialKindCount;
      known += (i == 0 ? "" : is_last ? " and " : ", ");
      known += info(static_cast<PartialKind>(i)).name;
    }
    throw error_at(text_, offset, "reductions are " + known);
  }

  // Expressions.
  int expression() {
    if (++depth_ > kMaxDepth)
      throw error("expressions are nested too deeply; name a part of this one");
    int value = product();
    while (is("+") || is("-")) {
      const Token sign = next();
      const int right = product();
      value = apply(sign.offset, sign.text == "+" ? Elementwise::add : Elementwise::sub,
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
      value = apply(sign.offset, sign.text == "*" ? Elementwise::mul : Elementwise::div,
                    {value, right});
    }
    return value;
  }
  int unary() {
    if (!is("-")) return primary();
    const size_t offset = next().offset;
    if (now().kind == TokenKind::number || is_word("inf")) {
      const double value = -number();
      return make(offset, [&] { return assembler_->constant(value); });
    }
    if (++depth_ > kMaxDepth)
      throw error("expressions are nested too deeply; name a part of this one");
    const int operand = unary();
    --depth_;
    return apply(offset, Elementwise::neg, {operand});
  }
  int apply(size_t offset, Elementwise op, std::vector<int> operands) {
    return make(offset, [&] { return assembler_->elementwise(op, std::move(operands)); });
  }

  int primary() {
    const Token start = now();
    if (start.kind == TokenKind::number || is_word("inf")) {
      const double value = number();
      return make(start.offset, [&] { return assembler_->constant(value); });
    }
    if (take("(")) {
      const int value = expression();
      expect(")");
      return value;
    }
    const std::string word = this->word("a value");
    if (take("(")) {
      const int value = call(word, start.offset);
      expect(")");
      return value;
    }
    const auto value = values_.find(word);
    if (value == values_.end()) {
      throw error_at(text_, start.offset,
                     "'" + word + "' has no value yet; a tensor is read by tile(" + word +
                         "), per_row(" + word + "), per_column(" + word + ") or scalar(" + word +
                         ")");
    }
    return value->second;
  }

  int call(const std::string& function, size_t offset) {
    if (const auto op = elementwise_by_name(function)) {
      std::vector<int> operands;
      do operands.push_back(expression());
      while (take(","));
      return apply(offset, *op, std::move(operands));
    }
    const auto kind = step_by_word(function);
    if (!kind || is_effect(*kind))
      throw error_at(text_, offset, "there is no function '" + function + "'");
    if (info(*kind).columns == ColumnChange::split) {
      throw error_at(text_, offset, "split_pairs gives two values: write  a, b = split_pairs(...)");
    }
    const StepMention step = arguments(*kind, function);
    return make(offset, [&] { return assembler_->make(step); });
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
      const size_t at = now().offset;
      const std::string option = word("rows= or repeat=");
      expect("=");
      if (option == "rows" && !m.row_index) {
        m.row_index = mention();
      } else if (option == "repeat") {
        *fields_of(m.step).repeat = integer();
      } else {
        throw error_at(text_, at,
                       "a tile takes rows= (an index of rows) and repeat= (of columns), each once");
      }
    }
  }

  // Which result of a partial that has two.
  int lane(const PartialInfo& kind) {
    if (kind.lanes != 2) return 0;
    expect(",");
    const size_t at = now().offset;
    const std::string result = word("the result to take");
    const auto& [first, second] = kind.results;
    if (result != first && result != second) {
      throw error_at(text_, at,
                     "a " + std::string(kind.name) + " partial gives " + std::string(first) +
                         " and " + std::string(second));
    }
    return result == second ? 1 : 0;
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  size_t now_ = 0;
  int depth_ = 0;
  Assembler* assembler_ = nullptr;
  std::map<std::string, int, std::less<>> values_;
  std::vector<size_t> places_;  // of each step, in the text
};

}  // namespace

TensorMention parse_mention(std::string_view text) { return Parser(text).lone_mention(); }

}  // namespace coda::program

namespace coda {

Program parse_program(std::string_view text) { return program::Parser(text).parse(); }

}  // namespace coda
