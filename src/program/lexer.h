// SPDX-License-Identifier: Apache-2.0
// Splits program text into words, numbers and signs. The end of a line is a token, except inside
// brackets. If the next line begins a statement, it is a token there too: a bracket was not closed,
// and otherwise all following lines would be lost. Each token has its position.
#pragma once

#include <string_view>
#include <vector>

namespace coda::program {

enum class TokenKind : unsigned char { word, name, number, sign, line_end, end, wrong };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // a quoted name without its quotes
  size_t offset = 0;
  const char* mistake = nullptr;  // why an invalid token is invalid
};

std::vector<Token> tokens_of(std::string_view text);

}  // namespace coda::program
