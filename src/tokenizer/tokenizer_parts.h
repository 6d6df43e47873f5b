// SPDX-License-Identifier: Apache-2.0
// The parts of a tokenizer, in the order in which they process a text, as in tokenizer.json.
#pragma once

#include <filesystem>
#include <optional>
#include <unordered_set>

#include "coda/tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace coda {

struct Tokenizer::Parts {
  tokenizer::AddedTokens as_written;  // found in the text itself
  tokenizer::Normalizer normalizer;
  tokenizer::AddedTokens as_normalized;  // found behind the normalizer
  tokenizer::PreTokenizer pre_tokenizer;
  std::optional<tokenizer::Bpe> model;
  std::vector<int32_t> before;  // special tokens around a text
  std::vector<int32_t> behind;
  std::optional<tokenizer::Decoder> decoder;

  tokenizer::Vocabulary ids;        // of all tokens, as the file writes them
  std::vector<std::string> tokens;  // by id; empty: there is none
  std::unordered_set<int32_t> special;
};

namespace tokenizer {

// Throws Error naming what is damaged or not supported.
Tokenizer::Parts read_tokenizer(const std::filesystem::path& file);

}  // namespace tokenizer
}  // namespace coda
