// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the tokenizer.json of a Hugging Face folder has it: byte pair
// encoding, of bytes (GPT-2, LLaMA 3, Qwen, SmolLM) or of characters (LLaMA 2, Mistral). Ids are
// those of the Python package `tokenizers`. What a file asks for beyond that is refused by name:
// nothing is passed over that would change an id.
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
  // Of a tokenizer.json, or of the folder that has one. Throws Error naming what is damaged or not
  // supported.
  explicit Tokenizer(const std::filesystem::path& path);

  // What is no UTF-8 counts as U+FFFD, as Python's errors="replace" has it. `adds_special`: the
  // tokens that the file puts around a text (LLaMA's <s>) are there. Special tokens that are
  // written out in the text are found in either case. Threads may share a tokenizer.
  std::vector<int32_t> encode(std::string_view text, bool adds_special = true) const;

  // Always UTF-8; ids that have no token are passed over. `skips_special`: so are special tokens.
  std::string decode(std::span<const int32_t> ids, bool skips_special = true) const;

  int64_t vocabulary() const;  // the largest id and 1
  std::optional<int32_t> id_of(std::string_view token) const;

  struct Parts;

 private:
  std::shared_ptr<const Parts> parts_;
  friend class TextEncoder;
};

// Encodes many texts: remembers the words it has met, so it is several times as fast as
// Tokenizer::encode. One for each thread.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);
  ~TextEncoder();
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  // As Tokenizer::encode, behind what `ids` has.
  void append(std::string_view text, bool adds_special, std::vector<int32_t>& ids);

 private:
  struct State;
  std::shared_ptr<const Tokenizer::Parts> parts_;
  std::unique_ptr<State> state_;
};

// Text that arrives a token at a time: push() returns what a token adds, once it is whole
// characters, and finish() what is left.
class TextStream {
 public:
  // Behind `before`, whose text is not returned.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before);
  std::string push(int32_t id);
  std::string finish();

 private:
  std::string rest() const;

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // the last that were returned, and those that were not
  size_t returned_ = 0;       // of these ids
  std::string text_;          // of the returned ones
};

// A folder that has a tokenizer has this file.
inline constexpr const char* kTokenizerFile = "tokenizer.json";

// The tokenizer of a model's folder; none if it has no file of one. Throws Error as its constructor
// does, and where the folder has one in another form alone (tokenizer.model, vocab.json).
std::optional<Tokenizer> find_tokenizer(const std::filesystem::path& folder);

// The text of a file, or all texts of a folder, as load_text has them: each as encode() gives it,
// with its special tokens. Where these are none, `end` is put between two texts, if it is given.
Tokens tokenize_text(const std::filesystem::path& path, const Tokenizer& tokenizer,
                     std::optional<int32_t> end = {});

// The tokens that end a text, as generation_config.json of a model's folder says, or else its
// config.json; none if neither does.
std::vector<int32_t> end_tokens_of(const std::filesystem::path& model_folder);

}  // namespace CODA_API coda
