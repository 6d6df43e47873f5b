// SPDX-License-Identifier: Apache-2.0
// Cuts a text into pieces before pairs are merged.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/component.h"
#include "tokenizer/pattern.h"

namespace coda::tokenizer {

// What becomes of a match and of what lies between two of them.
enum class CutBehaviour : uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

// Pieces are cut further by one step after another.
struct CutStep {
  std::optional<Pattern> pattern;  // none: pieces stay whole
  CutBehaviour behaviour = CutBehaviour::isolated;
  bool inverts = false;        // what lies between matches is the match
  std::string blank;           // what each ' ' of a piece becomes; empty: itself
  std::string front;           // put in front of a piece that does not start with it; may be empty
  bool only_at_start = false;  // only of the piece that the text starts with
};

struct PreTokenizer {
  std::vector<CutStep> steps;
  bool of_bytes = false;  // tokens are of bytes, written as byte_letters.h has them

  // Calls `on_piece` for each piece of a text, in order; none is empty.
  void cut(std::string_view text, bool is_at_start,
           const std::function<void(std::string_view)>& on_piece) const;
};

// Throws Error for a type that is not supported: there are ByteLevel, Split, Digits, Metaspace and
// Sequences of them, where ByteLevel is the last that changes anything.
PreTokenizer make_pre_tokenizer(const Component& component);

}  // namespace coda::tokenizer
