// SPDX-License-Identifier: Apache-2.0
// Words, numbers and signs of program text. A line's end is a token of its own, except inside
// parentheses and brackets. There it is one too where the next line begins a statement: a bracket
// was left open, and all lines behind it would be lost. Every token knows where it stands.
#pragma once

#include <string_view>
#include <vector>

namespace coda::program {

enum class TokenKind : unsigned char { word, name, number, sign, line_end, end, wrong };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // of a name in quotes: without them
  size_t offset = 0;
  const char* mistake = nullptr;  // of what is no token: why
};

std::vector<Token> tokens_of(std::string_view text);

}  // namespace coda::program
