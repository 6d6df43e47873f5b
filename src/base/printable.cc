// SPDX-License-Identifier: Apache-2.0
#include "coda/messages.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace coda {
namespace {

constexpr size_t kLongest = 240;  // shown whole
constexpr size_t kStart = 120;    // of a longer text
constexpr size_t kEnd = 60;       // a path's own name is at its end

// Bytes of the UTF-8 character that starts the text, or 0 if none does or a terminal would obey it.
size_t printable_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < size) return 0;
  uint32_t code = byte(0) & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_character =
      code >= kSmallest[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  const bool is_control = code < 0xa0 || code == 0x61c || (code >= 0x200b && code <= 0x200f) ||
                          (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f);
  return is_character && !is_control ? size : 0;
}

}  // namespace

std::string without_escapes(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t size = printable_size(text);
    if (size > 0) {
      result += text.substr(0, size);
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[0]));
      result += escaped;
    }
    text.remove_prefix(size > 0 ? size : 1);
  }
  return result;
}

std::string printable(std::string_view text) {
  std::string start = without_escapes(text.substr(0, kLongest));
  if (text.size() <= kLongest && start.size() <= kLongest) return start;
  const auto is_inside_character = [](char byte) { return (byte & 0xc0) == 0x80; };
  std::string end = without_escapes(text.substr(text.size() - std::min(text.size(), kLongest)));
  size_t cut = kStart;
  while (is_inside_character(start[cut])) --cut;
  size_t rest = end.size() - kEnd;
  while (is_inside_character(end[rest])) ++rest;
  return start.substr(0, cut) + "...(" + std::to_string(text.size()) + " bytes)..." +
         end.substr(rest);
}

std::string printable(const std::string& text) { return printable(std::string_view(text)); }
std::string printable(const std::filesystem::path& path) { return printable(path.native()); }

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

}  // namespace coda
