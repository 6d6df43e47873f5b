// SPDX-License-Identifier: Apache-2.0
// Each reading function consumes its tokens or throws a Mistake that says what was expected.
#include "program/token_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/nearest_name.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "program/vocabulary.h"

namespace coda::program {

std::string listed(const std::vector<std::string_view>& names) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + std::string(names[i]);
  return list;
}

std::string meant(std::string_view name, const std::vector<std::string_view>& known) {
  const auto similar = similar_name(name, known);
  return similar ? "; did you mean '" + std::string(*similar) + "'?" : "";
}

Mistake TokenReader::mistake(const std::string& message) const {
  return {here(), now().mistake != nullptr ? now().mistake : message};
}

bool TokenReader::take(std::string_view sign) {
  if (!is(sign)) return false;
  next();
  return true;
}

void TokenReader::expect(std::string_view sign) {
  if (!take(sign)) throw mistake("expected '" + std::string(sign) + "', " + found());
}

std::string TokenReader::found() const {
  if (at_end()) return "the text ends";
  if (now().kind == TokenKind::line_end) return "the line ends";
  return "there is " + in_quotes(now().text);
}

void TokenReader::skip_lines() {
  while (now().kind == TokenKind::line_end) next();
}

void TokenReader::skip_line() {
  const auto ends_here = [&] {
    if (at_end() || now().kind == TokenKind::line_end) return true;
    const TokenKind behind = tokens_[now_ + 1].kind;
    return is("}") && (behind == TokenKind::line_end || behind == TokenKind::end);
  };
  while (!ends_here()) next();
}

std::string TokenReader::name() {
  if (now().kind != TokenKind::word && now().kind != TokenKind::name)
    throw mistake("expected a name, " + found());
  return std::string(next().text);
}

std::string TokenReader::word(const char* what) {
  if (now().kind != TokenKind::word)
    throw mistake(std::string("expected ") + what + ", " + found());
  return std::string(next().text);
}

Dim TokenReader::dim() {
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

DType TokenReader::dtype() {
  const Place place = here();
  const std::string name = word("a type");
  const auto type = dtype_by_name(name);
  if (!type) throw Mistake{place, "types are " + listed(type_names()) + meant(name, type_names())};
  return *type;
}

bool TokenReader::is_number() const {
  return now().kind == TokenKind::number || is_word("inf") || is_word("nan");
}

double TokenReader::number() {
  const Token& token = now();
  double value = 0;
  if (token.kind == TokenKind::word) {
    value = token.text == "inf" ? std::numeric_limits<double>::infinity()
                                : std::numeric_limits<double>::quiet_NaN();
  } else {
    const auto [stop, problem] =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (problem != std::errc()) throw mistake("this number is out of range");
  }
  next();
  return value;
}

bool TokenReader::is_option() const {
  return now().kind == TokenKind::word && tokens_[now_ + 1].kind == TokenKind::sign &&
         tokens_[now_ + 1].text == "=";
}

}  // namespace coda::program
