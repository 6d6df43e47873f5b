// SPDX-License-Identifier: Apache-2.0
// Text without a tokenizer is bytes; ids of other vocabularies are printed as numbers.
#include "text_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "coda/error.h"
#include "coda/messages.h"
#include "coda/run.h"

namespace coda::tools {

namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

TextTokens TextTokens::of_model(const fs::path& folder, int64_t vocab) {
  TextTokens tokens;
  tokens.folder_ = printable(folder);
  tokens.vocabulary_ = vocab;
  tokens.tokenizer_ = find_tokenizer(folder);
  tokens.has_text_ = tokens.tokenizer_ || vocab == kBytes;
  tokens.ends_ = end_tokens_of(folder);
  return tokens;
}

TextTokens TextTokens::of_tokenizer(const fs::path& path) {
  TextTokens tokens;
  tokens.tokenizer_ = Tokenizer(path);
  if (fs::is_directory(path)) {
    tokens.ends_ = end_tokens_of(path);
    tokens.files_ = model_files_of(path).others;
  } else {
    tokens.files_[kTokenizerFile] = read(path);
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto id = tokens.tokenizer_->id_of(name); id && tokens.ends_.empty())
      tokens.ends_ = {*id};
  tokens.files_.emplace("tokenizer_config.json",
                        R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  if (!tokens.ends_.empty())
    tokens.files_["generation_config.json"] =
        fmt::format(R"({{"eos_token_id": [{}]}})", fmt::join(tokens.ends_, ", "));
  return tokens;
}

TextTokens TextTokens::as_numbers() const {
  TextTokens tokens = *this;
  tokens.has_text_ = false;
  return tokens;
}

void TextTokens::require_text(const char* remedy) const {
  require(has_text_,
          fmt::format("{}: the model has {} tokens, which are not the 256 bytes, and its "
                      "folder has no tokenizer.json: put it there, or give {} made with "
                      "the model's tokenizer",
                      folder_, vocabulary_, remedy));
}

Tokens TextTokens::load(const fs::path& data) const {
  require_text("--ids");
  for (const char* end : {".jsonl", ".json", ".csv", ".tsv"})
    if (data.extension() == end)
      fmt::print(stderr,
                 "coda: note: {}: its {} is read as plain text, with its field names and "
                 "quotes\n",
                 printable(data), end);
  if (!tokenizer_) return load_text(data);
  return tokenize_text(data, *tokenizer_,
                       ends_.empty() ? std::nullopt : std::optional(ends_.front()));
}

std::vector<int32_t> TextTokens::prompt(const std::string& text) const {
  require_text("--prompt-ids");
  if (!tokenizer_) {
    const std::string start = text.empty() ? "\n" : text;
    std::vector<int32_t> bytes;
    for (const unsigned char byte : start) bytes.push_back(byte);
    return bytes;
  }
  std::vector<int32_t> ids = tokenizer_->encode(text);
  if (ids.empty() && !ends_.empty()) ids = {ends_.front()};  // a new text begins
  return ids.empty() ? tokenizer_->encode("\n") : ids;
}

bool TextTokens::is_end(int32_t id) const { return std::ranges::find(ends_, id) != ends_.end(); }

void TextTokens::print(const std::vector<int32_t>& before, bool stops,
                       const std::function<void(const std::function<bool(int32_t)>&)>& make) const {
  std::optional<TextStream> stream;
  if (has_text_ && tokenizer_) stream.emplace(*tokenizer_, before);
  make([&](int32_t id) {
    if (stops && is_end(id)) return false;
    if (stream) {
      put(stream->push(id));
    } else if (has_text_) {
      put({static_cast<char>(id)});
    } else {
      put(std::to_string(id) + " ");
    }
    return std::ferror(stdout) == 0;
  });
  if (stream) put(stream->finish());
}

}  // namespace coda::tools
