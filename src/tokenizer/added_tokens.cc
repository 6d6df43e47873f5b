// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// Where the white space that ends at `end` starts, not before `least`.
size_t space_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    size_t start = end - 1;
    while (start > least && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_space(code_point(text.substr(start)))) break;
    end = start;
  }
  return end;
}

size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size() && is_space(code_point(text.substr(at)))) at += length_of(text[at]);
  return at;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  auto& places = by_first_byte_[static_cast<unsigned char>(token.content[0])];
  const auto shorter = std::ranges::find_if(
      places, [&](uint32_t place) { return tokens_[place].content.size() < token.content.size(); });
  places.insert(shorter, static_cast<uint32_t>(tokens_.size()));
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::at(std::string_view text) const {
  for (const uint32_t place : by_first_byte_[static_cast<unsigned char>(text[0])])
    if (text.starts_with(tokens_[place].content)) return &tokens_[place];
  return nullptr;
}

void AddedTokens::split(std::string_view text,
                        const std::function<void(std::string_view, size_t)>& on_text,
                        const std::function<void(int32_t)>& on_token) const {
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const AddedToken* token = at(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    const size_t begin = token->strips_left ? space_before(text, i, done) : i;
    if (done < begin) on_text(text.substr(done, begin - done), done);
    on_token(token->id);
    i += token->content.size();
    if (token->strips_right) i = space_behind(text, i);
    done = i;
  }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace coda::tokenizer
