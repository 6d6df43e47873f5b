// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

struct Character {
  size_t length = 0;  // bytes that belong together
  bool is_valid = false;
};

// The character at the start of a text, or the part of one: table 3-7 of the Unicode standard.
Character character_at(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t length = length_of(text[0]);
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

uint32_t code_point(std::string_view text) {
  const size_t length = length_of(text[0]);
  const auto first = static_cast<unsigned char>(text[0]);
  uint32_t value = length == 1 ? first : first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return value;
}

std::string utf8(uint32_t code_point) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  if (code_point < 0x800) return {static_cast<char>(0xC0 | code_point >> 6), tail(0)};
  if (code_point < 0x10000) return {static_cast<char>(0xE0 | code_point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)};
}

size_t valid_length(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = character_at(text.substr(at));
    if (!character.is_valid) break;
    at += character.length;
  }
  return at;
}

std::string with_replacements(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t valid = valid_length(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    result += kReplacement;
    text.remove_prefix(character_at(text).length);
  }
  return result;
}

}  // namespace coda::tokenizer
