// SPDX-License-Identifier: Apache-2.0
// GPT-2's letters for bytes: tokenizer files with tokens of bytes write each byte as a printable
// character. Printable bytes of Latin-1 stand for themselves, the others are U+0100 and up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace coda::tokenizer {

// The bytes of a token; nothing if a character stands for none.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace coda::tokenizer
