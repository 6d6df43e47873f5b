// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back, as specified by the tokenizer.json of a Hugging Face folder:
// byte-pair encoding of bytes (GPT-2, LLaMA 3, Qwen, SmolLM) or of characters (LLaMA 2, Mistral).
// Ids are the same as those of the Python package `tokenizers`. Unsupported features of a file are
// an Error, because ignoring them could change ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/text_data.h"

namespace CODA_API coda {

class Tokenizer {
 public:
  // `path`: a tokenizer.json or its folder. Throws Error naming what is damaged or not supported.
  explicit Tokenizer(const std::filesystem::path& path);

  // Invalid UTF-8 counts as U+FFFD, as Python's errors="replace". `adds_special`: adds the special
  // tokens that the file puts around a text (LLaMA's <s>). Special tokens written out in the text
  // are always recognised. Thread-safe.
  std::vector<int32_t> encode(std::string_view text, bool adds_special = true) const;

  // Always valid UTF-8. Skips ids without a token and, if `skips_special`, special tokens.
  std::string decode(std::span<const int32_t> ids, bool skips_special = true) const;

  int64_t vocabulary() const;  // the largest id plus 1
  std::optional<int32_t> id_of(std::string_view token) const;

  struct Parts;

 private:
  std::shared_ptr<const Parts> parts_;
  friend class TextEncoder;
};

// Encodes many texts: it caches words, so it is several times as fast as Tokenizer::encode. Use one
// per thread.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  // As Tokenizer::encode, but appends to `ids`.
  void append(std::string_view text, bool adds_special, std::vector<int32_t>& ids);

 private:
  struct State;
  std::shared_ptr<const Tokenizer::Parts> parts_;
  std::unique_ptr<State> state_;
};

// Decodes text that arrives token by token: push() returns the new text as soon as its characters
// are complete, finish() the rest.
class TextStream {
 public:
  // Continues after the tokens `before`, whose text is not returned.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before);
  std::string push(int32_t id);
  std::string finish();

 private:
  std::string rest() const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // the last ids that were returned, then those that were not
  size_t returned_ = 0;       // number of ids whose text was returned
  std::string text_;          // their text
};

// The file name of a tokenizer in a model folder.
inline constexpr const char* kTokenizerFile = "tokenizer.json";

// The tokenizer of a model folder; none if the folder has no tokenizer file. Throws Error as the
// constructor does, and if the folder has only another format (tokenizer.model, vocab.json).
std::optional<Tokenizer> find_tokenizer(const std::filesystem::path& folder);

// Encodes a file or all text files of a folder (as load_text) with special tokens. If the tokenizer
// adds none, `end` is put between two texts, if given.
Tokens tokenize_text(const std::filesystem::path& path, const Tokenizer& tokenizer,
                     std::optional<int32_t> end = {});

// The tokens that end a text, from the model folder's generation_config.json, or else from its
// config.json; empty if neither has any.
std::vector<int32_t> end_tokens_of(const std::filesystem::path& model_folder);

}  // namespace CODA_API coda
