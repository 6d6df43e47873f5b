// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a regular expression in Oniguruma's Ruby syntax, which the package
// `tokenizers` uses. Only constructs that can be matched in linear time are supported: sets of code
// points, sequences, choices, repeats, and lookahead of one code point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/point_set.h"

namespace coda::tokenizer {

struct RegexNode {
  enum class Kind : uint8_t { set, sequence, choice, repeat, look_ahead };

  Kind kind = Kind::sequence;
  PointSet set;                  // set, look_ahead
  std::vector<RegexNode> parts;  // sequence, choice: the operands; repeat: the repeated node
  int least = 0;                 // repeat: the smallest count
  int most = -1;                 // repeat: the largest count; -1: no limit
  bool is_lazy = false;          // repeat: match as few as possible
  // Look_ahead: matches if the next code point is not in the set, or at the end of the text.
  bool is_negative = false;
};

// Throws Error, starting with `source`, for an invalid or unsupported expression.
RegexNode parse_regex(std::string_view regex, const std::string& source);

}  // namespace coda::tokenizer
