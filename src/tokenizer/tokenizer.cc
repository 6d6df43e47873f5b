// SPDX-License-Identifier: Apache-2.0
// The way of a text through the parts of a tokenizer, and back.
#include "coda/tokenizer.h"

#include <algorithm>

#include "coda/error.h"
#include "coda/messages.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/utf8.h"

namespace coda {
namespace fs = std::filesystem;
using tokenizer::with_replacements;

namespace {

fs::path file_of(const fs::path& path) {
  std::error_code ignored;  // reading it says what is wrong
  return fs::is_directory(path, ignored) ? path / kTokenizerFile : path;
}

}  // namespace

Tokenizer::Tokenizer(const fs::path& path)
    : parts_(std::make_shared<const Parts>(tokenizer::read_tokenizer(file_of(path)))) {}

std::optional<Tokenizer> find_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kTokenizerFile, ignored)) return Tokenizer(folder);
  for (const char* other : {"tokenizer.model", "vocab.json", "tokenizer_config.json"}) {
    require(!fs::exists(folder / other, ignored),
            printable(folder) + ": there is " + other + ", but no " + kTokenizerFile +
                " (make it with transformers: AutoTokenizer.from_pretrained(FOLDER)"
                ".save_pretrained(FOLDER); or give token ids)");
  }
  return std::nullopt;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool adds_special) const {
  std::vector<int32_t> ids;
  TextEncoder(*this).append(text, adds_special, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skips_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary() || (skips_special && parts_->special.contains(id))) continue;
    tokens.push_back(parts_->tokens[static_cast<size_t>(id)]);
  }
  if (parts_->decoder) {
    for (const auto& step : *parts_->decoder) step(tokens);
  } else {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

int64_t Tokenizer::vocabulary() const { return std::ssize(parts_->tokens); }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto found = parts_->ids.find(token);
  return found == parts_->ids.end() ? std::nullopt : std::optional(found->second);
}

struct TextEncoder::State {
  tokenizer::WordCache words;
};

TextEncoder::TextEncoder(const Tokenizer& tokenizer)
    : parts_(tokenizer.parts_), state_(std::make_unique<State>()) {}
TextEncoder::~TextEncoder() = default;

void TextEncoder::append(std::string_view text, bool adds_special, std::vector<int32_t>& ids) {
  const Tokenizer::Parts& parts = *parts_;
  std::string valid;
  if (tokenizer::valid_length(text) != text.size()) text = valid = with_replacements(text);
  const auto on_token = [&](int32_t id) { ids.push_back(id); };
  const auto on_piece = [&](std::string_view piece) {
    parts.model->encode(piece, state_->words, ids);
  };
  if (adds_special) ids.insert(ids.end(), parts.before.begin(), parts.before.end());
  parts.as_written.split(
      text,
      [&](std::string_view part, size_t part_begin) {
        std::string memory;
        if (!parts.normalizer.empty())
          part = memory = tokenizer::normalized(parts.normalizer, part);
        parts.as_normalized.split(
            part,
            [&](std::string_view rest, size_t begin) {
              parts.pre_tokenizer.cut(rest, part_begin == 0 && begin == 0, on_piece);
            },
            on_token);
      },
      on_token);
  if (adds_special) ids.insert(ids.end(), parts.behind.begin(), parts.behind.end());
}

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer),
      ids_(before.begin(), before.end()),
      returned_(before.size()),
      text_(tokenizer.decode(ids_)) {}

// What the ids say beyond what was returned. A byte that makes those before it invalid would change
// what was returned: then the new ids are read alone.
std::string TextStream::rest() const {
  const std::string text = tokenizer_.decode(ids_);
  if (text.starts_with(text_)) return text.substr(text_.size());
  return tokenizer_.decode(std::span(ids_).subspan(returned_));
}

// A character that is not whole yet ends in U+FFFD. Once text is returned, the ids before those it
// came from are no longer needed.
std::string TextStream::push(int32_t id) {
  ids_.push_back(id);
  std::string more = rest();
  if (more.empty() || more.ends_with(tokenizer::kReplacement)) return "";
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(returned_));
  returned_ = ids_.size();
  text_ = tokenizer_.decode(ids_);
  return more;
}

std::string TextStream::finish() {
  std::string more = rest();
  returned_ = ids_.size();
  text_ = tokenizer_.decode(ids_);
  return more;
}

}  // namespace coda
