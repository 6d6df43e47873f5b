// SPDX-License-Identifier: Apache-2.0
// The lexer of program text.
#include "program/lexer.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "program/vocabulary.h"

namespace coda::program {
namespace {

// End of a number that starts at `i`: digits [. digits] [e [+-] digits].
size_t number_end(std::string_view text, size_t i) {
  const auto digits = [&] {
    while (i < text.size() && is_digit(text[i])) ++i;
  };
  digits();
  if (i + 1 < text.size() && text[i] == '.' && is_digit(text[i + 1])) {
    ++i;
    digits();
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    size_t j = i + 1;
    if (j < text.size() && (text[j] == '+' || text[j] == '-')) ++j;
    if (j < text.size() && is_digit(text[j])) {
      i = j;
      digits();
    }
  }
  return i;
}

// The end of a word that starts at `i`: identifiers joined by dots; after a dot, digits may come
// first.
size_t word_end(std::string_view text, size_t i) {
  const auto is_part = [&](size_t at) {
    return at < text.size() && (is_letter(text[at]) || is_digit(text[at]));
  };
  while (is_part(i) || (i < text.size() && text[i] == '.' && is_part(i + 1))) ++i;
  return i;
}

// Whether the line that starts at `i` begins a statement or ends the program even inside an open
// bracket: no part of a broken line looks like  z = ...,  a, b = ...,  store(...  or  }. Only an
// option looks similar: heads=8, ...
bool begins_statement(std::string_view text, size_t i) {
  const auto skip_blanks = [&] {
    while (i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i;
  };
  const auto is = [&](size_t at, char c) { return at < text.size() && text[at] == c; };
  const auto word = [&] {
    skip_blanks();
    const size_t start = i;
    if (i < text.size() && is_letter(text[i])) i = word_end(text, i);
    const std::string_view found = text.substr(start, i - start);
    skip_blanks();
    return found;
  };
  std::string_view first = word();
  if (is(i, '}')) return true;
  if (first.empty()) return false;
  const std::optional<StepKind> kind = step_by_word(first);
  if (is(i, '(')) return kind && is_effect(*kind);
  if (is(i, ',')) {
    ++i;
    if (word().empty()) return false;
    first = {};
  }
  if (!is(i, '=') || is(i + 1, '=') || first == "rows") return false;
  // Excludes options: a number or a size, followed by the rest of the open bracket.
  constexpr std::string_view kOfSizes = "_+-*. \t";
  for (++i; i < text.size(); ++i) {
    if (!is_letter(text[i]) && !is_digit(text[i]) &&
        kOfSizes.find(text[i]) == std::string_view::npos)
      return text[i] != ',' && text[i] != ')';
  }
  return true;
}

constexpr const char* kTransposed =
    "nothing is transposed by .T: gemm(x[M, K], w[N, K]) contracts the size that both have, and "
    "store_transposed(y, z) stores a transpose";

// The message for text that begins no word, number or sign. Syntax of NumPy gets a remedy.
const char* mistake_of(std::string_view text) {
  if (text.starts_with(".T")) return kTransposed;
  if (text.starts_with('@'))
    return "a product of matrices is written  gemm(x[M, K], w[N, K]), which contracts the size "
           "that both have";
  return "this character has no meaning here";
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  constexpr std::string_view kSigns = "()[]{},;:=+-*/<>";
  constexpr std::string_view kLongSigns[] = {"<=", ">=", "==", "!="};
  std::vector<Token> tokens;
  int depth = 0;  // of parentheses and brackets
  size_t i = 0;
  const auto add = [&](TokenKind kind, size_t stop, const char* mistake = nullptr) {
    tokens.push_back({kind, text.substr(i, stop - i), i, mistake});
    i = stop;
  };
  while (i < text.size()) {
    const char c = text[i];
    const bool is_long_sign = std::find(std::begin(kLongSigns), std::end(kLongSigns),
                                        text.substr(i, 2)) != std::end(kLongSigns);
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '\n') {
      if (depth > 0 && begins_statement(text, i + 1)) depth = 0;
      if (depth == 0) {
        add(TokenKind::line_end, i + 1);
      } else {
        ++i;
      }
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (is_letter(c)) {
      const size_t stop = word_end(text, i);
      const bool is_transposed = text.substr(i, stop - i).ends_with(".T");
      add(is_transposed ? TokenKind::wrong : TokenKind::word, stop,
          is_transposed ? kTransposed : nullptr);
    } else if (is_digit(c)) {
      add(TokenKind::number, number_end(text, i));
    } else if (c == '"') {
      const size_t close = std::min(text.find_first_of("\"\n", i + 1), text.size());
      const std::string_view name = text.substr(i + 1, close - i - 1);
      if (close == text.size() || text[close] == '\n') {
        add(TokenKind::wrong, close, "this quote is not closed");
      } else if (!is_name(name)) {
        add(TokenKind::wrong, close + 1,
            "a name is not empty, and has no backslash or unprintable character");
      } else {
        tokens.push_back({TokenKind::name, name, i});
        i = close + 1;
      }
    } else if (text.substr(i, 2) == "**") {
      add(TokenKind::wrong, i + 2, "a power is written  z * z, or exp(p * log(z))");
    } else if (is_long_sign) {
      add(TokenKind::sign, i + 2);
    } else if (kSigns.find(c) != std::string_view::npos) {
      if (c == '(' || c == '[') ++depth;
      if (c == ')' || c == ']') depth = std::max(0, depth - 1);
      add(TokenKind::sign, i + 1);
    } else {
      size_t stop = i + 1;  // of a character in UTF-8
      while (stop < text.size() && (text[stop] & 0xc0) == 0x80) ++stop;
      add(TokenKind::wrong, stop, mistake_of(text.substr(i)));
    }
  }
  tokens.push_back({TokenKind::end, {}, text.size()});
  return tokens;
}

}  // namespace coda::program
