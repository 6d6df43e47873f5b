// SPDX-License-Identifier: Apache-2.0
// Documents packed into sequences, for tests of attention.
#pragma once

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

}  // namespace coda
