// SPDX-License-Identifier: Apache-2.0
// How a model's tokens represent text: by the tokenizer in its folder, as bytes, or not at all.
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

  // For a model's folder and the size of its vocabulary. Without a tokenizer, tokens are bytes if
  // the size is kBytes.
  static TextTokens of_model(const std::filesystem::path& folder, int64_t vocab);
  // For a tokenizer.json, or a folder with one.
  static TextTokens of_tokenizer(const std::filesystem::path& path);
  static TextTokens of_bytes() { return TextTokens(); }

  bool has_text() const { return has_text_; }  // else tokens are numbers
  bool is_bytes() const { return has_text_ && !tokenizer_; }
  int64_t vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : vocabulary_; }
  // The files that a checkpoint of a new model needs to be read with this tokenizer: name -> bytes.
  std::map<std::string, std::string> files() const { return files_; }

  // Loads a text or a folder of texts. Throws Error if tokens are numbers.
  Tokens load(const std::filesystem::path& data) const;
  // The tokens of a prompt; for an empty text, the tokens with which a text starts. Throws Error if
  // tokens are numbers.
  std::vector<int32_t> prompt(const std::string& text) const;
  bool is_end(int32_t id) const;

  // Prints the text of each token that `make` passes to its argument, as it arrives; the text
  // continues `before`. Numbers are followed by a blank. The argument returns false when nobody
  // reads the output any more and, if `stops`, at the end of a text.
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
