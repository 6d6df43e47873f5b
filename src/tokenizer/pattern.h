// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, matched in linear time. They are written for Oniguruma, a
// backtracking matcher that may take quadratic time or worse. When the file is read, each
// expression is compiled to a deterministic automaton with the same matches, or refused.
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
  // Throws Error, starting with `source`, for an invalid expression, for an expression that needs a
  // large automaton or none can match (back references, lookahead of more than one character, some
  // counts), and for an expression that matches the empty string.
  static Pattern of_regex(std::string_view regex, const std::string& source);
  static Pattern of_text(std::string_view text, const std::string& source);
  // The pattern that the pre-tokenizer Digits splits by.
  static Pattern of_digits(bool individual);

 private:
  friend class Matches;
  struct Automaton;

  explicit Pattern(std::shared_ptr<const Automaton> automaton);

  std::shared_ptr<const Automaton> automaton_;
};

// The matches in a text, in order. Every character is read a bounded number of times: if the
// automaton reads far beyond a match, the object remembers the states from which no match follows.
class Matches {
 public:
  // `text`: valid UTF-8, which must outlive this object.
  Matches(const Pattern& pattern, std::string_view text);
  // Finds the next match, which has at least one character; returns false if there is none.
  bool next(Range& match);

 private:
  size_t match_at(size_t begin);  // returns the end of the match; `begin` if there is none

  std::shared_ptr<const Pattern::Automaton> automaton_;
  std::string_view text_;
  size_t from_ = 0;
  // Pairs of state and position from which no match follows.
  std::unordered_set<uint64_t> hopeless_;
  std::vector<uint64_t> passed_;  // pairs visited since the last match
};

// The text with each match replaced by `content`.
std::string replaced(const Pattern& pattern, std::string_view content, std::string_view text);

}  // namespace coda::tokenizer
