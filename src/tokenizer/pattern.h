// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files. They are written for Oniguruma in Ruby's syntax, which
// `tokenizers` uses; PCRE2 runs them here. Where the two take the same text to mean something else
// it is translated, or refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace coda::tokenizer {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

class Pattern {
 public:
  // Throws Error, starting with `source`, for what is no regular expression, and for what means
  // something else in PCRE2.
  static Pattern of_regex(std::string_view regex, const std::string& source);
  static Pattern of_text(std::string_view text, const std::string& source);

  // The first match that starts at `from` or behind, in valid UTF-8; false: there is none. A match
  // has at least one character.
  bool find(std::string_view text, size_t from, Range& match) const;

 private:
  Pattern(const std::string& regex, unsigned options, const std::string& source);

  std::shared_ptr<const void> code_;  // pcre2_code; several threads may match with it
  std::string source_;
};

}  // namespace coda::tokenizer
