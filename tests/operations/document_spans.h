// SPDX-License-Identifier: Apache-2.0
// Documents packed into sequences, and padded sequences, for tests of attention.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace coda {

// The first token of a row's document within its sequence of `tokens` rows, and the token behind
// the last one. Documents of these lengths follow each other. Each sequence begins with the length
// after that with which the sequence before begins. Tokens behind the last document have empty
// spans.
inline std::pair<int64_t, int64_t> document_of(int64_t row, const std::vector<int64_t>& lengths,
                                               int64_t tokens) {
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < lengths.size() && last <= row % tokens; ++i) {
    first = last;
    last += lengths[(i + row / tokens) % lengths.size()];
  }
  return {row % tokens < last ? first : last, last};
}

// The operand `documents` of attention: the spans of all rows.
template <typename Number>
std::vector<Number> document_spans(const std::vector<int64_t>& lengths, int64_t rows,
                                   int64_t tokens) {
  std::vector<Number> ends;
  for (int64_t row = 0; row < rows; ++row) {
    const auto [first, last] = document_of(row, lengths, tokens);
    ends.insert(ends.end(), {static_cast<Number>(first), static_cast<Number>(last)});
  }
  return ends;
}

// The operand `documents` with the columns of keys, for sequences of which some keys are hidden:
// lengths[0] tokens are seen, lengths[1] hidden, and so on; what follows is hidden. Each sequence
// begins with the length after that with which the one before begins. The keys that are seen come
// first. A window counts a token's own: it is of the tokens in front, and unless causal, of those
// behind too; 0: none.
template <typename Number>
std::vector<Number> padding_spans(const std::vector<int64_t>& lengths, int64_t rows, int64_t tokens,
                                  bool causal, int64_t window) {
  std::vector<Number> ends;
  for (int64_t start = 0; start < rows; start += tokens) {
    std::vector<int64_t> seen;               // their tokens
    std::vector<int64_t> count(tokens + 1);  // how many are in front of a token
    size_t run = start / tokens;
    int64_t left = lengths[run % lengths.size()];
    for (int64_t token = 0; token < tokens; ++token) {
      while (left == 0 && ++run < lengths.size()) left = lengths[run];
      if (left > 0 && run % 2 == 0) seen.push_back(token);
      if (left > 0) --left;
      count[token + 1] = static_cast<int64_t>(seen.size());
    }
    const int64_t before = window == 0 ? tokens : window - 1, behind = causal ? 0 : before;
    for (int64_t token = 0; token < tokens; ++token) {
      const bool is_seen = token < std::ssize(seen);
      const int64_t key = is_seen ? seen[token] : tokens;
      for (const int64_t end : {count[std::max<int64_t>(token - before, 0)],
                                count[std::min(token + behind + 1, tokens)],
                                is_seen ? std::max<int64_t>(key - behind, 0) : tokens,
                                is_seen ? std::min(key + before + 1, tokens) : tokens})
        ends.push_back(static_cast<Number>(end));
    }
  }
  return ends;
}

}  // namespace coda
