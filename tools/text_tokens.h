// SPDX-License-Identifier: Apache-2.0
// How a model's tokens stand for text: by the tokenizer in its folder, as bytes, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coda/tokenizer.h"

namespace coda::tools {

class TextTokens {
 public:
  static constexpr int64_t kBytes = 256;  // tokens of a text as bytes

  // Of a model's folder with a vocabulary of so many tokens. One without a tokenizer is of bytes if
  // these are kBytes.
  static TextTokens of_model(const std::filesystem::path& folder, int64_t vocab);
  // Of a tokenizer.json, or of a folder with one.
  static TextTokens of_tokenizer(const std::filesystem::path& path);
  static TextTokens of_bytes() { return TextTokens(); }

  bool has_text() const { return has_text_; }  // else tokens are numbers
  bool is_bytes() const { return has_text_ && !tokenizer_; }
  int64_t vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : vocabulary_; }
  // What a checkpoint of a new model needs to be read as this: by file name, its bytes.
  std::map<std::string, std::string> files() const { return files_; }

  // A text or a folder of texts. Throws Error if tokens are numbers.
  Tokens load(const std::filesystem::path& data) const;
  // What to go on from; of an empty text what a text starts with. Throws Error if tokens are
  // numbers.
  std::vector<int32_t> prompt(const std::string& text) const;
  bool is_end(int32_t id) const;

  // Prints the text of each token that `make` hands to its argument, as it comes: ids of text that
  // goes on from `before`. Numbers are printed with a blank behind. The argument returns false when
  // nobody reads the output, and at the end of a text if `stops`.
  void print(const std::vector<int32_t>& before, bool stops,
             const std::function<void(const std::function<bool(int32_t)>&)>& make) const;
  // The same tokens as numbers.
  TextTokens as_numbers() const;

 private:
  void require_text(const char* remedy) const;

  bool has_text_ = true;
  std::string folder_;  // for messages
  int64_t vocabulary_ = kBytes;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> ends_;
  std::map<std::string, std::string> files_;
};

}  // namespace coda::tools
