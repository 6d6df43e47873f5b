// SPDX-License-Identifier: Apache-2.0
// A regular expression in Oniguruma's Ruby syntax, which the package `tokenizers` uses, as a tree.
// Only what can be matched in linear time is taken: sets of code points, sequences, choices,
// repeats, and a look at the one code point ahead.
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
  std::vector<RegexNode> parts;  // sequence, choice: all of them; repeat: one
  int least = 0;                 // repeat
  int most = -1;                 // -1: any number
  bool is_lazy = false;          // as few as possible
  bool is_negative = false;      // look_ahead: nothing of the set is there, or the text ends
};

// Throws Error, starting with `source`, for what is no regular expression or is not supported.
RegexNode parse_regex(std::string_view regex, const std::string& source);

}  // namespace coda::tokenizer
