// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/decoder.h"

#include <charconv>
#include <optional>

#include "coda/error.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/growth.h"
#include "tokenizer/pattern_setting.h"
#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

using Texts = std::vector<std::string>;

void join(Texts& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void join_bytes(Texts& tokens) {
  for (std::string& token : tokens)
    if (auto bytes = bytes_of_letters(token)) token = std::move(*bytes);
  join(tokens);
  tokens[0] = with_replacements(tokens[0]);
}

// The byte of <0x41>.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// Bytes in a row become their characters, or U+FFFD each where they are not UTF-8.
void join_fallback_bytes(Texts& tokens) {
  Texts result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (valid_length(bytes) == bytes.size()) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(result);
}

// Takes up to `at_start` and `at_end` of a character off the ends.
void strip(std::string& token, const std::string& character, int64_t at_start, int64_t at_end) {
  std::string_view rest = token;
  for (; at_start > 0 && rest.starts_with(character); --at_start)
    rest.remove_prefix(character.size());
  for (; at_end > 0 && rest.ends_with(character); --at_end) rest.remove_suffix(character.size());
  token = std::string(rest);
}

}  // namespace

Decoder make_decoder(const Component& component) {
  Decoder steps;
  Growth growth;
  for (const Component& part : flattened(component, "decoders")) {
    if (part.is("ByteLevel")) {
      steps.emplace_back(join_bytes);
    } else if (part.is("ByteFallback")) {
      steps.emplace_back(join_fallback_bytes);
    } else if (part.is("Fuse")) {
      steps.emplace_back(join);
    } else if (part.is("Replace")) {
      growth.add_replacement(part);
      steps.emplace_back(
          [pattern = pattern_setting(part), content = part.text("content")](Texts& tokens) {
            for (std::string& token : tokens) token = replaced(pattern, content, token);
          });
    } else if (part.is("Strip")) {
      require(!part.text("content").empty(),
              part.source() + ": the decoder 'Strip' strips nothing: its 'content' is empty");
      steps.emplace_back([character = part.text("content"), start = part.number("start", 0),
                          stop = part.number("stop", 0)](Texts& tokens) {
        for (std::string& token : tokens) strip(token, character, start, stop);
      });
    } else if (part.is("Metaspace")) {
      const bool drops_first =
          part.text("prepend_scheme", part.flag("add_prefix_space", true) ? "always" : "never") !=
          "never";
      steps.emplace_back([blank = Pattern::of_text(part.text("replacement"), part.source()),
                          drops_first](Texts& tokens) {
        for (size_t i = 0; i < tokens.size(); ++i)
          tokens[i] = replaced(blank, i == 0 && drops_first ? "" : " ", tokens[i]);
      });
    } else {
      part.refuse();
    }
  }
  return steps;
}

}  // namespace coda::tokenizer
