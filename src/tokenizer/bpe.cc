// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <queue>

#include "coda/error.h"
#include "coda/messages.h"
#include "tokenizer/utf8.h"

namespace coda::tokenizer {
namespace {

constexpr size_t kNeighbourBits = 22;  // of the table of neighbours, in bits of its size
constexpr size_t kLongPiece = 48;      // bytes, from which on it is worth to look for cuts
constexpr size_t kLongestWord = 256;   // bytes of a word that is remembered
constexpr size_t kMostCachedIds = 4 << 20;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Of two code points or bytes. Different ones may share a place: then a cut is missed, which costs
// time alone.
size_t neighbour_place(uint32_t left, uint32_t right) {
  const uint64_t key = (uint64_t{left} << 32 | right) * 0x9e3779b97f4a7c15u;
  return key >> (64 - kNeighbourBits);
}

// The symbol that a word has at `at`, and its length.
std::pair<uint32_t, size_t> symbol_at(std::string_view word, size_t at, bool of_bytes) {
  if (of_bytes) return {static_cast<unsigned char>(word[at]), 1};
  return {code_point(word.substr(at)), length_of(word[at])};
}

// Symbols of a word as a list, from which joined ones are taken out.
struct Symbol {
  int32_t id = 0;  // -1: joined to the one before it
  int32_t before = 0;
  int32_t after = 0;
};

struct Candidate {
  int32_t rank = 0;
  int32_t place = 0;  // of the left one
  int32_t left = 0;   // ids when it was found, so that one that is out of date is known
  int32_t right = 0;
  int32_t joined = 0;

  bool operator<(const Candidate& other) const {  // the queue's first is its largest
    return rank != other.rank ? rank > other.rank : place > other.place;
  }
};

}  // namespace

const std::pair<uint32_t, uint32_t>* WordCache::find(std::string_view word) const {
  const auto found = words_.find(word);
  return found == words_.end() ? nullptr : &found->second;
}

void WordCache::add(std::string_view word, const std::vector<int32_t>& ids, size_t first) {
  if (ids_.size() > kMostCachedIds) {
    words_.clear();
    ids_.clear();
  }
  const auto begin = static_cast<uint32_t>(ids_.size());
  ids_.insert(ids_.end(), ids.begin() + static_cast<ptrdiff_t>(first), ids.end());
  words_.emplace(word, std::pair(begin, static_cast<uint32_t>(ids_.size())));
}

Bpe::Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
         const BpeSettings& settings, const std::string& source)
    : settings_(settings),
      vocabulary_(std::move(vocabulary)),
      symbols_(settings.of_bytes ? 256 : 0x110000, -1),
      byte_tokens_(256, -1),
      neighbours_(size_t{1} << kNeighbourBits) {
  for (const auto& [token, id] : vocabulary_) {
    if (token.empty()) continue;
    const auto [symbol, length] = symbol_at(token, 0, settings_.of_bytes);
    if (length == token.size()) symbols_[symbol] = id;
  }
  if (settings_.byte_fallback) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::array<char, 8> name{};
      std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
      const auto found = vocabulary_.find(std::string_view(name.data()));
      if (found != vocabulary_.end()) byte_tokens_[byte] = found->second;
    }
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const auto id_of = [&](const std::string& token) {
      const auto found = vocabulary_.find(token);
      require(found != vocabulary_.end() && !token.empty(),
              source + ": pair " + std::to_string(i) + " of 'merges' needs the token " +
                  in_quotes(token) + ", which 'vocab' lacks (the file is damaged: fetch it again)");
      return found->second;
    };
    const std::string joined = left + right;
    // One after the other: the token that a message names first is the same with every compiler.
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    merges_[key_of(left_id, right_id)] = {static_cast<int32_t>(i), id_of(joined)};
    uint32_t before = 0;
    for (size_t at = 0; at < joined.size();) {
      const auto [symbol, length] = symbol_at(joined, at, settings_.of_bytes);
      if (at > 0) neighbours_[neighbour_place(before, symbol)] = true;
      before = symbol;
      at += length;
    }
  }
}

// Where a character has no token of its own, bytes or unknown tokens beside each other may be
// joined.
bool Bpe::may_join(std::string_view left, std::string_view right) const {
  const uint32_t a = symbol_at(left, 0, settings_.of_bytes).first;
  const uint32_t b = symbol_at(right, 0, settings_.of_bytes).first;
  return symbols_[a] < 0 || symbols_[b] < 0 || neighbours_[neighbour_place(a, b)];
}

size_t Bpe::next_cut(std::string_view piece, size_t from) const {
  size_t at = from;
  while (true) {
    const size_t next = at + symbol_at(piece, at, settings_.of_bytes).second;
    if (next >= piece.size()) return piece.size();
    if (!may_join(piece.substr(at), piece.substr(next))) return next;
    at = next;
  }
}

void Bpe::encode(std::string_view piece, WordCache& cache, std::vector<int32_t>& ids) const {
  if (settings_.ignores_merges) {
    const auto found = vocabulary_.find(piece);
    if (found != vocabulary_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = piece.size() > kLongPiece ? next_cut(piece, begin) : piece.size();
    const std::string_view word = piece.substr(begin, end - begin);
    begin = end;
    if (const auto* known = cache.find(word)) {
      ids.insert(ids.end(), cache.ids() + known->first, cache.ids() + known->second);
      continue;
    }
    const size_t first = ids.size();
    encode_word(word, ids);
    if (word.size() <= kLongestWord) cache.add(word, ids, first);
  }
}

// An unknown token is put where the next character with a token of its own is, or at the end, which
// is behind the bytes of those between: as `tokenizers` has it.
void Bpe::append_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool is_unknown_due = false;
  const auto flush = [&] {
    if (is_unknown_due) symbols.push_back(*settings_.unknown);
    is_unknown_due = false;
  };
  for (size_t at = 0; at < word.size();) {
    const auto [symbol, length] = symbol_at(word, at, settings_.of_bytes);
    const std::string_view bytes = word.substr(at, length);
    at += length;
    const auto byte_token = [this](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
    if (symbols_[symbol] >= 0) {
      flush();
      symbols.push_back(symbols_[symbol]);
    } else if (std::ranges::all_of(bytes, [&](char c) { return byte_token(c) >= 0; })) {
      std::ranges::transform(bytes, std::back_inserter(symbols), byte_token);
    } else if (settings_.unknown) {
      if (!settings_.fuses_unknown) flush();
      is_unknown_due = true;
    }
  }
  flush();
}

void Bpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  require(word.size() <= INT32_MAX, "a word of a text has more than 2^31 bytes: give another text");
  std::vector<int32_t> symbols;
  append_symbols(word, symbols);
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  for (int32_t i = 0; i < count; ++i)
    list[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1,
                                    i + 1 < count ? i + 1 : -1};
  const auto at = [&](int32_t place) -> Symbol& { return list[static_cast<size_t>(place)]; };

  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t place) {
    if (place < 0 || at(place).after < 0) return;
    const int32_t left = at(place).id;
    const int32_t right = at(at(place).after).id;
    const auto found = merges_.find(key_of(left, right));
    if (found != merges_.end())
      queue.push({found->second.rank, place, left, right, found->second.id});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    Symbol& left = at(next.place);
    if (left.id != next.left || left.after < 0 || at(left.after).id != next.right) continue;
    Symbol& right = at(left.after);
    left.id = next.joined;
    right.id = -1;
    left.after = right.after;
    if (left.after >= 0) at(left.after).before = next.place;
    consider(left.before);
    consider(next.place);
  }
  for (const Symbol& symbol : list)
    if (symbol.id >= 0) ids.push_back(symbol.id);
}

}  // namespace coda::tokenizer
