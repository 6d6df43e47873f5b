// SPDX-License-Identifier: Apache-2.0
// Formulas are evaluated as they are read: recursive descent over the grammar of Python's
// expressions, as far as arrays need it.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "base/nearest_name.h"
#include "coda/error.h"
#include "coda/formula.h"
#include "coda/messages.h"
#include "formula/functions.h"
#include "formula/subscript.h"

namespace coda::formula {
namespace {

constexpr int kDeepest = 100;  // brackets within brackets

struct Token {
  enum class Kind : unsigned char { name, number, sign, line_end, end } kind = Kind::end;
  std::string_view text{};
  size_t offset = 0;
};

// "formula, line 2, column 5, at '@ w.T': what": one line, as all messages are.
[[noreturn]] void fail_at(std::string_view text, size_t offset, const std::string& what) {
  constexpr size_t kShown = 30;
  const size_t start = offset == 0 ? 0 : text.rfind('\n', offset - 1) + 1;
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n');
  const std::string_view rest = text.substr(offset, text.find('\n', offset) - offset);
  throw Error("formula, line " + std::to_string(line) + ", column " +
              std::to_string(offset - start + 1) + ", at " +
              (rest.empty() ? "the end" : in_quotes(rest.substr(0, kShown))) + ": " + what);
}

bool is_letter(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<Token> tokens_of(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kLong{
      "**", "//", "<=", ">=", "==", "!=", "...", "->"};
  std::vector<Token> tokens;
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    Token::Kind kind = Token::Kind::sign;
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '\n' || c == ';') {
      if (depth == 0) tokens.push_back({Token::Kind::line_end, text.substr(at, 1), at});
      at = end;
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\r') {
      at = end;
      continue;
    }
    if (is_letter(c)) {
      kind = Token::Kind::name;
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
    } else if (is_digit(c) || (c == '.' && at + 1 < text.size() && is_digit(text[at + 1]))) {
      kind = Token::Kind::number;
      double value = 0;
      const auto [stop, error] =
          std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (error != std::errc()) fail_at(text, at, "a number that no double holds");
      end = static_cast<size_t>(stop - text.data());
    } else {
      for (const std::string_view sign : kLong) {
        if (text.substr(at).starts_with(sign)) end = at + sign.size();
      }
      if (end == at + 1 && std::string_view("+-*/%@()[],:=<>.&|").find(c) == std::string_view::npos)
        fail_at(text, at,
                "the character " + in_quotes(text.substr(at, 1)) + " is not part of a formula");
      depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    }
    tokens.push_back({kind, text.substr(at, end - at), at});
    at = end;
  }
  tokens.push_back({Token::Kind::line_end, {}, text.size()});
  tokens.push_back({Token::Kind::end, {}, text.size()});
  return tokens;
}

class Evaluator {
 public:
  Evaluator(std::string_view text, const Arrays& known)
      : text_(text), tokens_(tokens_of(text)), known_(known) {}

  Arrays run() {
    while (token().kind != Token::Kind::end) {
      if (token().kind == Token::Kind::line_end) {
        ++at_;
        continue;
      }
      statement();
    }
    return std::move(assigned_);
  }

 private:
  const Token& token() const { return tokens_[at_]; }
  bool is(std::string_view sign) const {
    return token().kind == Token::Kind::sign && token().text == sign;
  }
  bool accept(std::string_view sign) {
    if (!is(sign)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(text_, token().offset, what); }
  void expect(std::string_view sign) {
    if (!accept(sign)) fail("expected '" + std::string(sign) + "' here, not " + found());
  }
  std::string found() const {
    return token().kind == Token::Kind::line_end || token().kind == Token::Kind::end
               ? "the end of the line"
               : in_quotes(token().text);
  }

  // Runs what may throw an Error without a place, which then is `at`.
  template <typename Work>
  auto placed(const Token& at, Work work) {
    try {
      return work();
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("formula, line ")) throw;
      fail_at(text_, at.offset, error.what());
    }
  }

  // NAME ("," NAME)* "=" value. A name may have a dot: the result of a partial.
  void statement() {
    const Token start = token();
    std::vector<std::string> names;
    do {
      if (token().kind != Token::Kind::name)
        fail("a line begins with the name that it gives a value: out = ...; here is " + found());
      std::string name(token().text);
      ++at_;
      while (accept(".")) {
        name += "." + std::string(token().text);
        ++at_;
      }
      names.push_back(std::move(name));
    } while (accept(","));
    if (!is("=")) fail("expected '=' behind the name that the line gives a value, not " + found());
    ++at_;
    const Value value = list_or_value();
    if (token().kind != Token::Kind::line_end) fail("expected an operator, not " + found());
    placed(start, [&] {
      if (names.size() == 1) {
        assigned_[names.front()] = array_of(value, "the value of " + names.front());
        return;
      }
      require(value.kind == Value::Kind::sequence && value.items.size() == names.size(),
              std::to_string(names.size()) + " names need as many values");
      for (size_t i = 0; i < names.size(); ++i)
        assigned_[names[i]] = array_of(value.items[i], "the value of " + names[i]);
    });
  }

  Value list_or_value() {
    Value first = expression();
    if (!is(",")) return first;
    std::vector<Value> items{std::move(first)};
    while (accept(",")) {
      if (is(")") || is("]")) break;
      items.push_back(expression());
    }
    return Value::sequence(std::move(items));
  }

  Value apply(const Token& at, const Value& a, const Value& b,
              const std::function<double(double, double)>& function) {
    return placed(at, [&] {
      const std::string what = "an operand of " + std::string(at.text);
      return Value::of(map(array_of(a, what), array_of(b, what), function));
    });
  }

  Value expression() {
    if (++depth_ > kDeepest) fail("too many brackets within brackets");
    Value left = condition();
    const Token at = token();
    static constexpr std::array<std::string_view, 6> kComparisons{"<", "<=", ">", ">=", "==", "!="};
    const auto* which = std::find(kComparisons.begin(), kComparisons.end(), at.text);
    if (at.kind == Token::Kind::sign && which != kComparisons.end()) {
      ++at_;
      left =
          apply(at, left, condition(), [which = which - kComparisons.begin()](double a, double b) {
            const bool results[] = {a<b, a <= b, a> b, a >= b, a == b, a != b};
            return results[which] ? 1.0 : 0.0;
          });
    }
    --depth_;
    return left;
  }

  // & and | bind as tightly as in Python: comparisons beside them stand in brackets.
  Value condition() {
    Value left = sum();
    while (is("&") || is("|")) {
      const Token at = token();
      const bool both = at.text == "&";
      ++at_;
      left = apply(at, left, sum(), [both](double a, double b) {
        return (both ? a != 0 && b != 0 : a != 0 || b != 0) ? 1.0 : 0.0;
      });
    }
    return left;
  }

  Value sum() {
    Value left = product();
    while (is("+") || is("-")) {
      const Token at = token();
      const double sign = at.text == "+" ? 1 : -1;
      ++at_;
      left = apply(at, left, product(), [sign](double a, double b) { return a + sign * b; });
    }
    return left;
  }

  Value product() {
    Value left = signed_value();
    while (is("*") || is("/") || is("@") || is("//") || is("%")) {
      const Token at = token();
      ++at_;
      const Value right = signed_value();
      if (at.text == "@") {
        left = placed(at, [&] {
          return Value::of(
              matmul(array_of(left, "an operand of @"), array_of(right, "an operand of @")));
        });
      } else if (at.text == "*") {
        left = apply(at, left, right, [](double a, double b) { return a * b; });
      } else if (at.text == "/") {
        left = apply(at, left, right, [](double a, double b) { return a / b; });
      } else if (at.text == "//") {
        left = apply(at, left, right, [](double a, double b) { return std::floor(a / b); });
      } else {
        left = apply(at, left, right, [](double a, double b) { return a - b * std::floor(a / b); });
      }
    }
    return left;
  }

  Value signed_value() {
    const Token at = token();
    if (accept("+")) return nested(&Evaluator::signed_value);
    if (!accept("-")) return power();
    return apply(at, Value::of(scalar(0)), nested(&Evaluator::signed_value),
                 [](double, double b) { return -b; });
  }
  Value nested(Value (Evaluator::*rule)()) {
    if (++depth_ > kDeepest) fail("too many signs before one value");
    Value value = (this->*rule)();
    --depth_;
    return value;
  }

  Value power() {
    Value base = postfix();
    const Token at = token();
    if (!accept("**")) return base;
    return apply(at, base, nested(&Evaluator::signed_value),
                 [](double a, double b) { return std::pow(a, b); });
  }

  Value postfix() {
    Value value = primary();
    for (;;) {
      const Token at = token();
      if (accept("[")) {
        value = indexed(at, value);
      } else if (accept(".")) {
        value = member(value);
      } else {
        return value;
      }
    }
  }

  Value member(const Value& value) {
    const Token at = token();
    if (at.kind != Token::Kind::name) fail("expected a name behind the dot, not " + found());
    ++at_;
    if (at.text == "T" || at.text == "mT")
      return placed(at, [&] { return Value::of(transpose(array_of(value, "what is before .T"))); });
    if (at.text == "shape") {
      std::vector<Value> sizes;
      for (const int64_t size :
           placed(at, [&] { return array_of(value, "what is before .shape"); }).shape)
        sizes.push_back(Value::of(scalar(static_cast<double>(size))));
      return Value::sequence(std::move(sizes));
    }
    return called(at, {{"", value}});
  }

  // The function's name has been read; `arguments` are those before the bracket.
  Value called(const Token& name, std::vector<Argument> arguments) {
    if (!is_function(name.text))
      fail_at(text_, name.offset,
              "there is no function " + in_quotes(name.text) +
                  nearest_name(name.text, function_names()));
    expect("(");
    while (!is(")")) {
      Argument argument;
      const bool is_named = token().kind == Token::Kind::name &&
                            tokens_[at_ + 1].kind == Token::Kind::sign &&
                            tokens_[at_ + 1].text == "=";
      if (is_named) {
        argument.name = token().text;
        at_ += 2;
      }
      argument.value = expression();
      arguments.push_back(std::move(argument));
      if (!accept(",")) break;
    }
    expect(")");
    return placed(name, [&] { return call(name.text, std::move(arguments)); });
  }

  Value indexed(const Token& at, const Value& value) {
    std::vector<Subscript> subscripts;
    do {
      if (is("]")) break;
      subscripts.push_back(subscript());
    } while (accept(","));
    expect("]");
    return placed(at, [&] {
      if (value.kind != Value::Kind::sequence)
        return Value::of(element(array_of(value, "what is indexed"), subscripts));
      require(subscripts.size() == 1 && subscripts.front().kind == Subscript::Kind::index,
              "of several values one is taken by a number");
      const int64_t index = whole_number(subscripts.front().index, "the index");
      const int64_t place = index < 0 ? index + std::ssize(value.items) : index;
      require(place >= 0 && place < std::ssize(value.items), "there is no value of that number");
      return value.items[static_cast<size_t>(place)];
    });
  }

  Subscript subscript() {
    if (accept("...")) return {.kind = Subscript::Kind::ellipsis};
    Subscript result;
    const auto bound = [&]() -> std::optional<int64_t> {
      if (is(":") || is(",") || is("]")) return std::nullopt;
      const Token at = token();
      const Value value = expression();
      return placed(at, [&] {
        return whole_number(array_of(value, "a bound of a slice"), "a bound of a slice");
      });
    };
    if (!is(":")) {
      const Token at = token();
      const Value value = expression();
      if (value.kind == Value::Kind::none) return {.kind = Subscript::Kind::none};
      if (!is(":")) {
        return placed(at, [&] {
          return Subscript{.kind = Subscript::Kind::index, .index = array_of(value, "an index")};
        });
      }
      result.start = placed(at, [&] {
        return whole_number(array_of(value, "a bound of a slice"), "a bound of a slice");
      });
    }
    expect(":");
    result.stop = bound();
    if (accept(":")) result.step = bound().value_or(1);
    return result;
  }

  Value primary() {
    const Token at = token();
    if (at.kind == Token::Kind::number) {
      ++at_;
      double number = 0;
      std::from_chars(at.text.data(), at.text.data() + at.text.size(), number);
      return Value::of(scalar(number));
    }
    if (accept("(") || accept("[")) {
      const std::string_view closing = at.text == "(" ? ")" : "]";
      if (accept(closing)) return Value::sequence({});
      Value value = list_or_value();
      if (at.text == "[" && value.kind != Value::Kind::sequence)
        value = Value::sequence({std::move(value)});
      expect(closing);
      return value;
    }
    if (at.kind != Token::Kind::name) fail("expected a value here, not " + found());
    ++at_;
    return named(at);
  }

  Value named(const Token& at) {
    if (is("(")) return called(at, {});
    // Tensors of plans have dots in their names.
    if (is(".") && tokens_[at_ + 1].kind == Token::Kind::name) {
      const auto dotted =
          known_.find(std::string(at.text) + "." + std::string(tokens_[at_ + 1].text));
      if (dotted != known_.end()) {
        at_ += 2;
        return Value::of(dotted->second);
      }
    }
    if (const auto own = assigned_.find(at.text); own != assigned_.end())
      return Value::of(own->second);
    if (const auto given = known_.find(at.text); given != known_.end())
      return Value::of(given->second);
    if (at.text == "None" || at.text == "newaxis") return Value::none();
    if (at.text == "True" || at.text == "False") return Value::of(scalar(at.text == "True"));
    if (at.text == "inf") return Value::of(scalar(std::numeric_limits<double>::infinity()));
    if (at.text == "nan") return Value::of(scalar(std::numeric_limits<double>::quiet_NaN()));
    if (at.text == "pi") return Value::of(scalar(std::numbers::pi));
    for (const std::string_view module : {"np", "numpy", "torch", "math", "F", "special", "nn"}) {
      if (at.text != module || !accept(".")) continue;
      const Token inside = token();
      if (inside.kind != Token::Kind::name) fail("expected a name behind the dot, not " + found());
      ++at_;
      return named(inside);
    }
    std::vector<std::string> names;
    for (const auto& [name, value] : assigned_) names.push_back(name);
    for (const auto& [name, value] : known_) names.push_back(name);
    fail_at(text_, at.offset,
            in_quotes(at.text) + (is_function(at.text)
                                      ? " is a function: write " + std::string(at.text) + "(...)"
                                      : " has no value here" + nearest_name(at.text, names)));
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  const Arrays& known_;
  Arrays assigned_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace
}  // namespace coda::formula

namespace coda {

Arrays evaluate_formula(std::string_view text, const Arrays& known) {
  return formula::Evaluator(text, known).run();
}

}  // namespace coda
