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
  const Token& now() const { return tokens_[position_]; }
  const Token& next() { return tokens_[now().kind == TokenKind::end ? position_ : position_++]; }
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
    if (!type) throw error_at(text_, offset, "types are f32, bf16, f16, f64 and i32");
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
      if (kind && is_effect(*kind)) return effect(first, start.offset);
      throw error_at(text_, start.offset,
                     "a statement gives a value a name (z = ...) or is one of store, row_partial, "
                     "column_partial");
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
    const size_t offset = next().offset;
    expect("(");
    const int value = expression();
    expect(",");
    const PairGroup group = pair_group();
    expect(")");
    for (int which = 0; which < 2; ++which) {
      if (targets[which].text == "_") continue;
      const int member = make(offset, [&] { return assembler_->split_pair(value, group, which); });
      values_.emplace(targets[which].text, member);
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

  void effect(const std::string& function, size_t offset) {
    expect("(");
    const TensorMention tensor = mention();
    expect(",");
    if (function == "store") {
      const int value = expression();
      expect(")");
      make(offset, [&] { return assembler_->store(tensor, value); });
      return;
    }
    const PartialKind kind = partial_kind();
    expect("(");
    const int value = expression();
    expect(")");
    expect(")");
    make(offset, [&] { return assembler_->partial(*step_by_word(function), tensor, kind, value); });
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

  PairGroup pair_group() {
    if (is_word("concatenated")) return next(), std::nullopt;
    if (is_word("interleaved")) return next(), PairGroup(2);
    return dim();
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
    Assembler& a = *assembler_;
    const auto kind = step_by_word(function);
    if (!kind || is_effect(*kind))
      throw error_at(text_, offset, "there is no function '" + function + "'");
    switch (*kind) {
      case StepKind::gemm: return gemm(offset);
      case StepKind::load_tile: return tile(offset);
      case StepKind::load_per_row:
      case StepKind::load_per_column:
      case StepKind::load_scalar: {
        const TensorMention tensor = mention();
        return make(offset, [&] { return a.load_vector(*kind, tensor); });
      }
      case StepKind::column_index: {
        const std::optional<Dim> columns = is(")") ? std::nullopt : std::optional(dim());
        return make(offset, [&] { return a.column_index(columns); });
      }
      case StepKind::combine: return combine(function, offset);
      case StepKind::split_pair:
        throw error_at(text_, offset,
                       "split_pairs gives two values: write  a, b = split_pairs(...)");
      default: return of_values(*kind, offset);
    }
  }

  int of_values(StepKind kind, size_t offset) {
    Assembler& a = *assembler_;
    const int value = expression();
    const int second = info(kind).operands == 2 ? (expect(","), expression()) : -1;
    switch (kind) {
      case StepKind::reduce_vector: return make(offset, [&] { return a.reduce_vector(value); });
      case StepKind::transpose_vector:
        return make(offset, [&] { return a.transpose_vector(value); });
      case StepKind::select_column:
        return make(offset, [&] { return a.select_column(value, second); });
      default: expect(",");
    }
    if (kind == StepKind::as_stored) {
      const DType type = dtype();
      return make(offset, [&] { return a.as_stored(value, type); });
    }
    if (kind == StepKind::merge_pairs) {
      const PairGroup group = pair_group();
      return make(offset, [&] { return a.merge_pairs(value, second, group); });
    }
    const Dim group = dim();
    return make(offset, [&] {
      return kind == StepKind::reduce_group ? a.reduce_group(value, group)
                                            : a.repeat_group(value, group);
    });
  }

  int gemm(size_t offset) {
    std::vector<SegmentMention> segments;
    do {
      SegmentMention segment;
      segment.a = mention();
      expect(",");
      segment.b = mention();
      if (take(",")) segment.layout = word("a layout (nn, nt, tn or tt)");
      segments.push_back(std::move(segment));
    } while (take(";"));
    return make(offset, [&] { return assembler_->gemm(segments); });
  }

  int tile(size_t offset) {
    const TensorMention tensor = mention();
    std::optional<TensorMention> rows;
    int64_t repeat = 1;
    while (take(",")) {
      const size_t at = now().offset;
      const std::string option = word("rows= or repeat=");
      expect("=");
      if (option == "rows" && !rows) {
        rows = mention();
      } else if (option == "repeat") {
        repeat = integer();
      } else {
        throw error_at(text_, at,
                       "a tile takes rows= (an index of rows) and repeat= (of columns), each once");
      }
    }
    return make(offset, [&] { return assembler_->load_tile(tensor, rows, repeat); });
  }

  int combine(const std::string& function, size_t offset) {
    const PartialKind kind = partial_kind();
    expect("(");
    const TensorMention tensor = mention();
    expect(")");
    int lane = 0;
    const auto& [first, second] = info(kind).results;
    if (info(kind).lanes == 2) {
      expect(",");
      const size_t at = now().offset;
      const std::string result = word("the result to take");
      if (result == second) {
        lane = 1;
      } else if (result != first) {
        throw error_at(text_, at,
                       "a " + std::string(info(kind).name) + " partial gives " +
                           std::string(first) + " and " + std::string(second));
      }
    }
    const TensorKind tensor_kind =
        function == "combine_rows" ? TensorKind::row_partial : TensorKind::column_partial;
    return make(offset, [&] { return assembler_->combine(tensor_kind, tensor, kind, lane); });
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
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
