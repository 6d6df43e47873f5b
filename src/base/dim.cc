// SPDX-License-Identifier: Apache-2.0
// Linear forms of dimension symbols: arithmetic, the text form and its parser, evaluation. Every
// operation checks for overflow, so that a size that does not fit 64 bits is an error and never a
// wrong number.
#include "coda/dim.h"

#include <utility>

#include "coda/error.h"

namespace coda {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_identifier(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (char c : text) {
    if (!is_letter(c) && !is_digit(c)) return false;
  }
  return true;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw Error("a size does not fit 64 bits");
  return result;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw Error("a size does not fit 64 bits");
  return result;
}

// dim := ["-"] term (("+" | "-") term)*,  term := number ["*" symbol] | symbol
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  Dim parse() {
    skip_space();
    Dim sum = take('-') ? int64_t{-1} * term() : term();
    while (position_ < text_.size()) {
      if (take('+')) {
        sum = sum + term();
      } else if (take('-')) {
        sum = sum - term();
      } else {
        fail();
      }
    }
    return sum;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error("'" + std::string(text_) +
                "' is not a size; write a number, a symbol or a sum such as 2*I + 4");
  }
  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t'))
      ++position_;
  }
  bool take(char c) {
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    skip_space();
    return true;
  }
  Dim term() {
    if (position_ < text_.size() && is_digit(text_[position_])) {
      int64_t number = 0;
      while (position_ < text_.size() && is_digit(text_[position_])) {
        number = checked_add(checked_mul(number, 10), text_[position_++] - '0');
      }
      skip_space();
      return take('*') ? number * symbol() : Dim(number);
    }
    return symbol();
  }
  Dim symbol() {
    const size_t start = position_;
    while (position_ < text_.size() && (is_letter(text_[position_]) || is_digit(text_[position_])))
      ++position_;
    const std::string_view name = text_.substr(start, position_ - start);
    if (!is_identifier(name)) fail();
    skip_space();
    return Dim(std::string(name));
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

Dim::Dim(const std::string& symbol) {
  require(is_identifier(symbol),
          "'" + symbol + "' is not a dimension symbol; use letters, digits and _");
  set_terms({{symbol, 1}});
}

const std::map<std::string, int64_t>& Dim::terms() const {
  static const std::map<std::string, int64_t> none;
  return terms_ == nullptr ? none : *terms_;
}

void Dim::set_terms(std::map<std::string, int64_t> terms) {
  terms_ = terms.empty() ? nullptr
                         : std::make_shared<const std::map<std::string, int64_t>>(std::move(terms));
}

int64_t Dim::evaluate(const DimValues& values) const {
  int64_t size = constant_;
  for (const auto& [symbol, coefficient] : terms()) {
    const auto found = values.find(symbol);
    if (found == values.end()) {
      throw Error("dimension symbol '" + symbol + "' has no value (needed for " + text() + ")");
    }
    size = checked_add(size, checked_mul(coefficient, found->second));
  }
  if (size <= 0) {
    std::string given;
    for (const auto& [symbol, coefficient] : terms()) {
      given += (given.empty() ? " with " : ", ") + symbol + " = " +
               std::to_string(values.find(symbol)->second);
    }
    throw Error("size " + text() + " is " + std::to_string(size) + given +
                "; sizes must be positive");
  }
  return size;
}

std::optional<Dim> Dim::half() const {
  if (constant_ % 2 != 0) return std::nullopt;
  Dim result;
  result.constant_ = constant_ / 2;
  std::map<std::string, int64_t> halves = terms();
  for (auto& [symbol, coefficient] : halves) {
    if (coefficient % 2 != 0) return std::nullopt;
    coefficient /= 2;
  }
  result.set_terms(std::move(halves));
  return result;
}

std::string Dim::text() const {
  std::string result;
  // The magnitude is taken in unsigned arithmetic: -INT64_MIN does not fit int64_t.
  const auto append = [&result](int64_t value, const std::string& symbol) {
    const uint64_t magnitude =
        value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    if (result.empty()) {
      result += value < 0 ? "-" : "";
    } else {
      result += value < 0 ? " - " : " + ";
    }
    if (symbol.empty()) {
      result += std::to_string(magnitude);
    } else {
      result += magnitude == 1 ? symbol : std::to_string(magnitude) + "*" + symbol;
    }
  };
  for (const auto& [symbol, coefficient] : terms()) append(coefficient, symbol);
  if (constant_ != 0 || result.empty()) append(constant_, "");
  return result;
}

Dim Dim::parse(std::string_view text) { return DimParser(text).parse(); }

Dim operator+(const Dim& a, const Dim& b) {
  Dim sum = a;
  sum.constant_ = checked_add(a.constant_, b.constant_);
  if (b.is_constant()) return sum;
  std::map<std::string, int64_t> terms = a.terms();
  for (const auto& [symbol, coefficient] : b.terms()) {
    int64_t& value = terms[symbol];
    value = checked_add(value, coefficient);
    if (value == 0) terms.erase(symbol);
  }
  sum.set_terms(std::move(terms));
  return sum;
}

Dim operator-(const Dim& a, const Dim& b) { return a + int64_t{-1} * b; }

Dim operator*(int64_t factor, const Dim& d) {
  Dim product;
  if (factor == 0) return product;
  product.constant_ = checked_mul(factor, d.constant_);
  std::map<std::string, int64_t> terms = d.terms();
  for (auto& [symbol, coefficient] : terms) coefficient = checked_mul(factor, coefficient);
  product.set_terms(std::move(terms));
  return product;
}

}  // namespace coda
