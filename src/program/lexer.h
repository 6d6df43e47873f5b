// SPDX-License-Identifier: Apache-2.0
// Words, numbers and signs of program text. A line's end is a token of its own, except inside
// parentheses and brackets. Every token knows where it stands, for messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coda/error.h"

namespace coda::program {

enum class TokenKind : unsigned char { word, name, number, sign, line_end, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // of a name in quotes: without them
  size_t offset = 0;
};

// An Error that says line and column, and shows the line.
Error error_at(std::string_view text, size_t offset, const std::string& message);

// Throws Error on a character that belongs to no token.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace coda::program
