// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text. It starts with single symbols (bytes or characters). Of
// all neighbouring symbols that the file lists as a pair, those that are listed first are merged,
// leftmost first, until no listed pair is left.
//
// A long piece is first cut between two characters that are adjacent in no token. No merge crosses
// such a place, so the parts are encoded separately and cached. In SentencePiece models, which have
// no pieces, these places are the starts of words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coda::tokenizer {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

struct BpeSettings {
  bool of_bytes = false;                // symbols are bytes; else characters
  bool byte_fallback = false;           // a character without a token becomes its bytes' <0x41>
  bool fuses_unknown = false;           // several in a row become one
  bool ignores_merges = false;          // a piece that is a token is this token
  std::optional<int32_t> unknown = {};  // of a character without a token; none: it is dropped
};

// Words that were encoded before. One for each thread.
class WordCache {
 public:
  const std::pair<uint32_t, uint32_t>* find(std::string_view word) const;
  void add(std::string_view word, const std::vector<int32_t>& ids, size_t first);
  const int32_t* ids() const { return ids_.data(); }

 private:
  std::unordered_map<std::string, std::pair<uint32_t, uint32_t>, TextHash, std::equal_to<>> words_;
  std::vector<int32_t> ids_;  // of all words; a word has [first, second)
};

class Bpe {
 public:
  // Tokens of bytes, as raw bytes, or of UTF-8; pairs of tokens, the first to be joined first.
  // Throws Error, starting with `source`, for a pair whose parts or whole are no tokens.
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
      const BpeSettings& settings, const std::string& source);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the ids of valid UTF-8.
  void encode(std::string_view piece, WordCache& cache, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  size_t next_cut(std::string_view piece, size_t from) const;
  bool may_join(std::string_view left, std::string_view right) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& symbols) const;

  BpeSettings settings_;
  Vocabulary vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // by both ids
  std::vector<int32_t> symbols_;                // id by byte, or code point; -1: none
  std::vector<int32_t> byte_tokens_;            // of <0x00> to <0xFF>; -1: none
  std::vector<bool> neighbours_;                // a hash of two characters side by side
};

}  // namespace coda::tokenizer
