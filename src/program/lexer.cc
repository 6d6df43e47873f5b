// SPDX-License-Identifier: Apache-2.0
// The lexer of program text.
#include "program/lexer.h"

#include <algorithm>

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

// End of a word that starts at `i`: identifiers, also with digits first after a dot, joined by
// dots.
size_t word_end(std::string_view text, size_t i) {
  const auto is_part = [&](size_t at) {
    return at < text.size() && (is_letter(text[at]) || is_digit(text[at]));
  };
  while (is_part(i) || (i < text.size() && text[i] == '.' && is_part(i + 1))) ++i;
  return i;
}

}  // namespace

Error error_at(std::string_view text, size_t offset, const std::string& message) {
  offset = std::min(offset, text.size());
  const size_t before = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t start = before == std::string_view::npos ? 0 : before + 1;
  const size_t stop = std::min(text.find('\n', offset), text.size());
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(start), '\n');
  std::string shown(text.substr(start, stop - start));
  // What a terminal would not show as one column would put the mark in the wrong place.
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = ' ';
  }
  // A line of a file that is no program may be as long as that.
  constexpr size_t kShown = 200;
  std::string mark = "\n  " + std::string(offset - start, ' ') + "^";
  if (shown.size() > kShown) {
    shown = shown.substr(0, kShown) + "...";
    if (offset - start > kShown) mark.clear();
  }
  return Error("line " + std::to_string(line) + ", column " + std::to_string(offset - start + 1) +
               ": " + message + "\n  " + shown + mark);
}

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  int depth = 0;  // of parentheses and brackets
  size_t i = 0;
  const auto add = [&](TokenKind kind, size_t stop) {
    tokens.push_back({kind, text.substr(i, stop - i), i});
    i = stop;
  };
  while (i < text.size()) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '\n') {
      if (depth == 0) {
        add(TokenKind::line_end, i + 1);
      } else {
        ++i;
      }
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (is_letter(c)) {
      add(TokenKind::word, word_end(text, i));
    } else if (is_digit(c)) {
      add(TokenKind::number, number_end(text, i));
    } else if (c == '"') {
      const size_t close = text.find_first_of("\"\n", i + 1);
      if (close == std::string_view::npos || text[close] == '\n')
        throw error_at(text, i, "this quote is not closed");
      const std::string_view name = text.substr(i + 1, close - i - 1);
      if (!is_name(name))
        throw error_at(text, i,
                       "a name is not empty, and has no backslash or unprintable character");
      tokens.push_back({TokenKind::name, name, i});
      i = close + 1;
    } else if (std::string_view("()[]{},;:=+-*/").find(c) != std::string_view::npos) {
      if (c == '(' || c == '[') ++depth;
      if (c == ')' || c == ']') depth = std::max(0, depth - 1);
      add(TokenKind::sign, i + 1);
    } else {
      throw error_at(text, i, "this character has no meaning here");
    }
  }
  tokens.push_back({TokenKind::end, {}, text.size()});
  return tokens;
}

}  // namespace coda::program
