// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in a text as they are written, before anything else is done to it:
// <|endoftext|> and the like.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coda::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool strips_left = false;  // white space before it, or behind it, is part of it
  bool strips_right = false;
  bool is_special = false;
  bool is_normalized = false;  // it is looked for in the normalized text
};

class AddedTokens {
 public:
  // Of several that start at one place the longest is found, and of equal ones the first.
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // Calls on_text for what lies between tokens, and where it starts; on_token for their ids.
  void split(std::string_view text, const std::function<void(std::string_view, size_t)>& on_text,
             const std::function<void(int32_t)>& on_token) const;

 private:
  const AddedToken* at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<uint32_t>, 256> by_first_byte_;  // places in tokens_, the longest first
};

}  // namespace coda::tokenizer
