// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, matched in linear time. They are written for Oniguruma,
// which goes back over a text and may take quadratic time or worse; here each becomes a
// deterministic automaton with the same matches when the file is read, or is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace coda::tokenizer {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

class Pattern {
 public:
  // Throws Error, starting with `source`, for what is no regular expression, for what no automaton
  // of moderate size can match (references, looks further than one character ahead, some counts),
  // and for what matches where there is nothing.
  static Pattern of_regex(std::string_view regex, const std::string& source);
  static Pattern of_text(std::string_view text, const std::string& source);
  // What the pre-tokenizer Digits cuts out.
  static Pattern of_digits(bool individual);

 private:
  friend class Matches;
  struct Automaton;

  explicit Pattern(std::shared_ptr<const Automaton> automaton);

  std::shared_ptr<const Automaton> automaton_;
};

// The matches in a text, one behind the other. Every character is read a bounded number of times:
// where the automaton ran far beyond a match, it remembers that nothing is found from there.
class Matches {
 public:
  // Valid UTF-8, which outlives it.
  Matches(const Pattern& pattern, std::string_view text);
  // The next match, which has at least one character; false: there is none.
  bool next(Range& match);

 private:
  size_t match_at(size_t begin);  // its end; `begin`: there is none

  std::shared_ptr<const Pattern::Automaton> automaton_;
  std::string_view text_;
  size_t from_ = 0;
  std::unordered_set<uint64_t> hopeless_;  // states at places, from which there is no match
  std::vector<uint64_t> passed_;           // since the last match
};

// The text with each match replaced.
std::string replaced(const Pattern& pattern, std::string_view content, std::string_view text);

}  // namespace coda::tokenizer
