// SPDX-License-Identifier: Apache-2.0
// Recovers from a mistake at the end of its line and remembers which names failed.
#include "program/statement_reader.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "coda/error.h"
#include "coda/messages.h"
#include "program/problem.h"
#include "program/vocabulary.h"

namespace coda::program {
namespace {

constexpr int kMaxDepth = 200;  // of nested expressions: bad input must not exhaust the stack
constexpr std::string_view kComparisons[] = {"<", "<=", ">", ">=", "==", "!="};

}  // namespace

int StatementReader::make(Place place, const std::function<int()>& action) {
  try {
    return action();
  } catch (const Problem& problem) {
    throw Mistake{place, problem.message};
  } catch (const Error& problem) {
    throw Mistake{place, problem.what()};
  }
}

void StatementReader::refuse_other_word(std::string_view word, const std::string& message) {
  skip_lines();
  if (!is_word(word)) return;
  diagnostics_.add(mistake(message));
  diagnostics_.fail(file_);
}

std::string StatementReader::header(std::string_view word, const std::string& otherwise) {
  std::string result(word);
  try {
    skip_lines();
    if (!is_word(word))
      throw mistake("expected '" + std::string(word) + "', " + found() + "; " + otherwise);
    next();
    header_place_ = here();
    result = name();
    skip_lines();
    expect("{");
  } catch (const Mistake& mistake) {
    diagnostics_.add(mistake);
    while (!at_end() && !is("{")) next();
    take("{");
  }
  return result;
}

void StatementReader::body() {
  skip_lines();
  while (!is("}") && !at_end() && !diagnostics_.is_full()) {
    line();
    skip_lines();
  }
  if (diagnostics_.is_full()) return;
  try {
    expect("}");
    skip_lines();
    if (!at_end())
      throw mistake(
          "the program or graph ends here; a file holds one graph, or programs, each of "
          "which begins with  program NAME {");
  } catch (const Mistake& mistake) {
    if (!diagnostics_.any()) diagnostics_.add(mistake);
  }
}

void StatementReader::end_of_statement() {
  if (is("}") || now().kind == TokenKind::line_end) return;
  throw mistake("expected the end of the line, " + found());
}

// A statement and the end of its line.
void StatementReader::line() {
  const size_t start = position();
  is_consequence_ = false;
  try {
    statement();
    end_of_statement();
    return;
  } catch (const Mistake& mistake) {
    if (!is_consequence_) diagnostics_.add(mistake);
  } catch (const FollowsFromMistake&) {
    is_consequence_ = false;  // do not report further mistakes in this line
  }
  depth_ = 0;
  pass_over(start);
}

// Skips to the end of the line. Marks the names that the failed statement (from token `start`)
// would have defined as failed, and also tensors that it would have been the first to name.
void StatementReader::pass_over(size_t start) {
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
    const auto value = values_.find(token.text);
    if (gives_names && i < equals) {
      if (value == values_.end()) values_.emplace(token.text, kFailed);
    } else if (value == values_.end()) {
      failed_mention(token.text);
    } else {
      unread_.erase(value->first);
    }
  }
}

void StatementReader::statement() {
  const Token start = now();
  word("a statement");
  if (is("(")) return effect(start);
  std::vector<Token> targets = {start};
  while (take(",")) {
    targets.push_back(now());
    word("a name");
  }
  expect("=");
  for (const Token& target : targets) check_target(target, targets.size() > 1);
  if (targets.size() > 1) {
    for (size_t i = 0; i < targets.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (targets[i].text == targets[j].text && targets[i].text != "_")
          throw Mistake{place_of(targets[i]), "two values need two names"};
      }
    }
    return define_several(targets);
  }
  define(targets[0], expression());
}

void StatementReader::check_target(const Token& target, bool may_be_unwanted) const {
  const std::string name(target.text);
  if (name == "_" && may_be_unwanted) return;
  if (!is_identifier(name) || is_reserved(name)) {
    throw Mistake{place_of(target),
                  in_quotes(name) +
                      " cannot name a value; use letters, digits and _, and no function's name"};
  }
  const auto earlier = values_.find(name);
  if (earlier != values_.end() && earlier->second != kFailed)
    throw Mistake{place_of(target), in_quotes(name) + " has a value already; a name is given once"};
}

void StatementReader::define(const Token& target, int value) {
  if (target.text == "_") return;
  const std::string name(target.text);
  values_[name] = value;
  unread_.emplace(name, place_of(target));
}

PartialKind StatementReader::partial_kind() {
  const Place place = here();
  const std::string name = word("a kind of reduction");
  const auto kind = partial_by_name(name);
  if (kind) return *kind;
  std::vector<std::string_view> known;
  for (int i = 0; i < kPartialKindCount; ++i)
    known.push_back(info(static_cast<PartialKind>(i)).name);
  throw Mistake{place, "reductions are " + listed(known) + meant(name, known)};
}

TensorMention StatementReader::mention() {
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

PairGroup StatementReader::pair_group() {
  if (is_word("concatenated")) {
    next();
    return std::nullopt;
  }
  if (!is_word("interleaved")) return dim();
  next();
  return 2;
}

int StatementReader::expression() {
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
  return apply(place_of(sign), op, is_turned ? std::vector{right, left} : std::vector{left, right});
}

int StatementReader::sum() {
  int value = product();
  while (is("+") || is("-")) {
    const Token sign = next();
    const int right = product();
    value = apply(place_of(sign), sign.text == "+" ? Elementwise::add : Elementwise::sub,
                  {value, right});
  }
  return value;
}

int StatementReader::product() {
  int value = unary();
  while (is("*") || is("/")) {
    const Token sign = next();
    const int right = unary();
    value = apply(place_of(sign), sign.text == "*" ? Elementwise::mul : Elementwise::div,
                  {value, right});
  }
  return value;
}

int StatementReader::unary() {
  if (!is("-")) return primary();
  const Place place = place_of(next());
  if (is_number()) {
    const double value = -number();
    return make(place, [&] { return constant(value); });
  }
  if (++depth_ > kMaxDepth)
    throw mistake("expressions are nested too deeply; name a part of this one");
  const int operand = unary();
  --depth_;
  return apply(place, Elementwise::neg, {operand});
}

int StatementReader::apply(Place place, Elementwise op, std::vector<int> operands) {
  return make(place, [&] { return elementwise(op, std::move(operands)); });
}

int StatementReader::primary() {
  const Token start = now();
  if (is_number()) {
    const double value = number();
    return make(place_of(start), [&] { return constant(value); });
  }
  if (take("(")) {
    const int value = expression();
    expect(")");
    return value;
  }
  const bool is_quoted = start.kind == TokenKind::name && may_be_quoted();
  const std::string word = is_quoted ? name() : this->word("a value");
  if (is_quoted ? (expect("("), true) : take("(")) {
    const auto op = is_quoted ? std::nullopt : operation_by_word(word);
    const int value = op ? apply(place_of(start), *op, values()) : call(start);
    expect(")");
    return value;
  }
  return named_value(word, place_of(start));
}

std::vector<int> StatementReader::values() {
  std::vector<int> all;
  do all.push_back(expression());
  while (take(","));
  return all;
}

int StatementReader::named_value(const std::string& name, Place place) {
  const auto value = values_.find(name);
  if (value != values_.end()) {
    if (value->second == kFailed) throw FollowsFromMistake();
    unread_.erase(name);
    return value->second;
  }
  // The lexer's message about this invalid character is more useful.
  if (now().text == "@") throw mistake("");
  std::vector<std::string_view> known;
  for (const auto& [other, step] : values_) {
    if (step != kFailed) known.push_back(other);
  }
  const std::string reads = remedy_for(name);
  const std::string similar = meant(name, known);
  values_.emplace(name, kFailed);  // each name is reported once
  throw Mistake{place, in_quotes(name) + " has no value yet" +
                           (similar.empty() ? "; " + reads : similar + " (" + reads + ")")};
}

}  // namespace coda::program
