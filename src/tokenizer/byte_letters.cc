// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_letters.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

constexpr uint32_t kFirstOther = 0x100;
constexpr uint32_t kOthers = 68;  // bytes that are not printable

bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

std::array<char, kOthers> other_bytes() {
  std::array<char, kOthers> bytes{};
  size_t count = 0;
  for (uint32_t byte = 0; byte < 256; ++byte)
    if (!is_printable(byte)) bytes[count++] = static_cast<char>(byte);
  return bytes;
}

}  // namespace

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  static const std::array<char, kOthers> kOther = other_bytes();
  std::string bytes;
  while (!letters.empty()) {
    const uint32_t letter = code_point(letters);
    if (letter < kFirstOther && is_printable(letter)) {
      bytes += static_cast<char>(letter);
    } else if (letter >= kFirstOther && letter < kFirstOther + kOthers) {
      bytes += kOther[letter - kFirstOther];
    } else {
      return std::nullopt;
    }
    letters.remove_prefix(length_of(letters[0]));
  }
  return bytes;
}

}  // namespace coda::tokenizer
