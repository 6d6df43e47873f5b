// SPDX-License-Identifier: Apache-2.0
// Reads the tokens of a text in order, and the parts that need no knowledge of the program: signs,
// words, numbers, sizes, types. Unexpected tokens are a Mistake.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dim.h"
#include "coda/dtype.h"
#include "program/diagnostics.h"
#include "program/lexer.h"

namespace coda::program {

// "a, b and c"
std::string listed(const std::vector<std::string_view>& names);
// "; did you mean 'acc'?", or empty if no known name is similar.
std::string meant(std::string_view name, const std::vector<std::string_view>& known);

inline Place place_of(const Token& token) {
  return {token.offset, token.kind == TokenKind::line_end ? 1 : token.text.size()};
}

class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : text_(text), tokens_(tokens_of(text)) {}

  std::string_view text() const { return text_; }
  const Token& now() const { return tokens_[now_]; }
  const Token& next() { return tokens_[at_end() ? now_ : now_++]; }
  bool at_end() const { return now().kind == TokenKind::end; }
  Place here() const { return place_of(now()); }
  // A mistake at the current token. An invalid token has its own message.
  Mistake mistake(const std::string& message) const;

  bool is(std::string_view sign) const {
    return now().kind == TokenKind::sign && now().text == sign;
  }
  bool is_word(std::string_view word) const {
    return now().kind == TokenKind::word && now().text == word;
  }
  bool take(std::string_view sign);  // whether it was there
  void expect(std::string_view sign);
  std::string found() const;  // "there is 'x'", "the line ends"

  void skip_lines();
  // Skips to the end of the line or of the program.
  void skip_line();
  size_t position() const { return now_; }
  std::span<const Token> tokens_from(size_t start) const {
    return std::span(tokens_).subspan(start, now_ - start);
  }

  std::span<const Token> all_tokens() const { return tokens_; }

  std::string name();  // of a program or a tensor: a word, or what stands in quotes
  std::string word(const char* what);
  Dim dim();  // all tokens up to a comma or a closing bracket
  DType dtype();
  bool is_number() const;  // or inf, nan
  double number();
  bool is_option() const;  // a word and '='

 private:
  std::string_view text_;
  std::vector<Token> tokens_;
  size_t now_ = 0;
};

}  // namespace coda::program
