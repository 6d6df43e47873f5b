// SPDX-License-Identifier: Apache-2.0
// Finds tokens that a text contains literally, such as <|endoftext|>, before any other processing.
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
  bool strips_left = false;  // white space before it belongs to it; strips_right: after it
  bool strips_right = false;
  bool is_special = false;
  bool is_normalized = false;  // it is searched in the normalized text
};

class AddedTokens {
 public:
  // Of several tokens that start at one place the longest is found; of equal ones the first.
  void add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // Calls on_text with each text between tokens and its start, and on_token with each token's id.
  void split(std::string_view text, const std::function<void(std::string_view, size_t)>& on_text,
             const std::function<void(int32_t)>& on_token) const;

 private:
  const AddedToken* at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::array<std::vector<uint32_t>, 256> by_first_byte_;  // places in tokens_, the longest first
};

}  // namespace coda::tokenizer
