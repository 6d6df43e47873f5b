// SPDX-License-Identifier: Apache-2.0
// UTF-8. Text is checked once, where it enters the program, and is valid from there on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coda::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Bytes of the character that starts with `first`, in valid UTF-8.
inline size_t length_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at the start of valid UTF-8.
uint32_t code_point(std::string_view text);
std::string utf8(uint32_t code_point);

// How many bytes from the start are valid.
size_t valid_length(std::string_view text);

// The text with U+FFFD for each longest part that starts a character but does not end it, and for
// each other byte that is in none: what Unicode recommends (its chapter 3.9) and Python and Rust
// do.
std::string with_replacements(std::string_view text);

}  // namespace coda::tokenizer
