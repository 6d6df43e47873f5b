// SPDX-License-Identifier: Apache-2.0
// Texts that are nearly programs: what a slip of the finger, a cut file or a careless tool makes of
// one.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "program/lexer.h"
#include "program/random_program.h"

namespace coda::tests {

class TextMutator {
 public:
  explicit TextMutator(uint64_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    const int count = below(2) ? 1 : 1 + below(4);
    for (int i = 0; i < count && !text.empty(); ++i) step(text);
    return text;
  }

 private:
  int below(size_t n) { return static_cast<int>(random_() % n); }

  void step(std::string& text) {
    const int at = below(text.size());
    switch (below(8)) {
      case 0: text[at] = static_cast<char>(random_()); return;
      case 1: text[at] ^= static_cast<char>(1 << below(8)); return;
      case 2: text.erase(at, 1 + below(12)); return;
      case 3: text.resize(at); return;
      case 4: text.insert(at, words_[below(std::size(words_))]); return;
      case 5: {  // copies a part elsewhere
        const std::string part = text.substr(below(text.size()), 1 + below(60));
        text.insert(at, part);
        return;
      }
      default: swap_tokens(text); return;
    }
  }

  void swap_tokens(std::string& text) {
    const std::vector<program::Token> tokens = program::tokens_of(text);
    const auto& a = tokens[below(tokens.size())];
    const auto& b = tokens[below(tokens.size())];
    const auto& [first, second] = a.offset < b.offset ? std::pair(a, b) : std::pair(b, a);
    if (first.text.empty() || second.text.empty() ||
        first.offset + first.text.size() > second.offset)
      return;
    const std::string one(first.text);
    const std::string other(second.text);
    text.replace(second.offset, other.size(), one);
    text.replace(first.offset, one.size(), other);
  }

  std::mt19937_64 random_;
  const char* words_[28] = {"(",
                            ")",
                            "[",
                            "]",
                            "\"",
                            ",",
                            "\n",
                            "}",
                            "-",
                            "1e308",
                            "99999999999999999999",
                            "M",
                            "2*",
                            "_",
                            "inf",
                            "gemm(",
                            "interleaved",
                            "<",
                            ">=",
                            "!=",
                            "repeat=",
                            "where(",
                            "abs(",
                            "H",
                            "graph",
                            "input(",
                            "again(",
                            "heads="};
};

// Texts of random programs and of their finalizers.
inline std::vector<std::string> random_texts(uint64_t count) {
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const RandomProgram random = random_program(seed);
    texts.push_back(text(random.program));
    if (random.finalizer) texts.push_back(text(*random.finalizer));
  }
  return texts;
}

}  // namespace coda::tests
