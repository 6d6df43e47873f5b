// SPDX-License-Identifier: Apache-2.0
// The parser on broken text: whatever is done to a valid program, it is either parsed to a program
// that prints and parses to itself, or refused with an Error; nothing else is thrown, and nothing
// crashes or hangs.
#include <gtest/gtest.h>

#include <random>

#include "coda/error.h"
#include "coda/program.h"
#include "program/lexer.h"
#include "program/random_program.h"

namespace coda {
namespace {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

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
    std::vector<program::Token> tokens;
    try {
      tokens = program::tokens_of(text);
    } catch (const Error&) {
      return;
    }
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
  const char* words_[17] = {
      "(",           ")", "[",  "]", "\"",  ",",    "\n", "}", "-", "1e308", "99999999999999999999",
      "interleaved", "M", "2*", "_", "inf", "gemm("};
};

TEST(ProgramTextFuzz, BrokenTextIsParsedOrRefused) {
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const tests::RandomProgram random = tests::random_program(seed);
    texts.push_back(text(random.program));
    if (random.finalizer) texts.push_back(text(*random.finalizer));
  }
  int parsed = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const std::string broken = Mutator(seed).mutate(texts[seed % texts.size()]);
    Program program;
    try {
      program = parse_program(broken);
    } catch (const Error& error) {
      ++refused;
      continue;
    } catch (const std::exception& error) {
      FAIL() << "seed " << seed << " throws " << error.what() << "\n" << broken;
    }
    ++parsed;
    const std::string printed = text(program);
    ASSERT_EQ(parse_program(printed), program) << "seed " << seed << "\n"
                                               << broken << "\n"
                                               << printed;
  }
  // Both happen: otherwise this tests little.
  EXPECT_GT(parsed, 500);
  EXPECT_GT(refused, 5000);
}

TEST(ProgramTextFuzz, RandomTokensAreRefused) {
  std::mt19937_64 random(1);
  const char* words[] = {"program",     "p", "{", "}",   "\n",         "=", "store", "(",
                         ")",           ",", "x", "[",   "M",          "]", "gemm",  "tile",
                         "+",           "*", "-", "2",   "\"",         ";", ":",     "bf16",
                         "split_pairs", "a", "_", "sum", "row_partial"};
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = trial % 2 ? "program p {\n a = tile(x[M, N])\n" : "";
    for (int i = 0; i < 12; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    try {
      parse_program(text);
    } catch (const Error&) {
    } catch (const std::exception& error) {
      FAIL() << error.what() << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace coda
