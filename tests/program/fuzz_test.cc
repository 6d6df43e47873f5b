// SPDX-License-Identifier: Apache-2.0
// The parser on broken text, 10^5 times: whatever is done to a valid program, it is either parsed
// to a program that prints, is laid out and parses to itself, or refused with mistakes that lie in
// the text; nothing else is thrown, and nothing crashes or hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/seeds.h"
#include "coda/error.h"
#include "coda/program.h"
#include "coda/program_error.h"
#include "coda/program_format.h"
#include "program/mutated_text.h"

namespace coda {
namespace {

// The mistakes that a text is refused with; none if it is a program.
std::vector<Diagnostic> mistakes_in(const std::string& text, Program& program) {
  try {
    program = parse_program(text);
  } catch (const ProgramError& error) {
    EXPECT_FALSE(error.mistakes().empty());
    return error.mistakes();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << "\n" << text;
  }
  return {};
}

void expect_to_lie_in(const std::string& text, const std::vector<Diagnostic>& mistakes) {
  const int64_t lines = 1 + std::count(text.begin(), text.end(), '\n');
  for (const Diagnostic& mistake : mistakes) {
    ASSERT_GE(mistake.line, 1);
    ASSERT_LE(mistake.line, lines) << mistake.message << "\n" << text;
    ASSERT_LE(mistake.column, static_cast<int64_t>(text.size()) + 1);
    ASSERT_FALSE(mistake.message.empty());
    ASSERT_EQ(mistake.message.find('\x01'), std::string::npos) << mistake.message;
  }
}

TEST(ProgramTextFuzz, BrokenTextIsParsedOrRefused) {
  const std::vector<std::string> texts = tests::random_texts(200);
  int parsed = 0;
  int refused = 0;
  constexpr int kTexts = tests::fewer_if_sanitized(70000);
  for (uint64_t seed = 0; seed < kTexts; ++seed) {
    SCOPED_TRACE(seed);
    const std::string broken = tests::TextMutator(seed).mutate(texts[seed % texts.size()]);
    Program program;
    const std::vector<Diagnostic> mistakes = mistakes_in(broken, program);
    if (!mistakes.empty()) {
      ++refused;
      expect_to_lie_in(broken, mistakes);
      continue;
    }
    ++parsed;
    if (parsed % 4 != 0) continue;
    const std::string printed = text(program);
    ASSERT_EQ(parse_program(printed), program) << broken << "\n" << printed;
    ASSERT_EQ(parse_program(format_program(broken)), program) << broken;
  }
  // Both happen: otherwise this tests little.
  EXPECT_GT(parsed, kTexts / 35);
  EXPECT_GT(refused, kTexts / 7 * 2);
}

TEST(ProgramTextFuzz, RandomTokensAreRefused) {
  std::mt19937_64 random(1);
  const char* words[] = {"program",     "p", "{", "}",   "\n",          "=", "store", "(",
                         ")",           ",", "x", "[",   "M",           "]", "gemm",  "tile",
                         "+",           "*", "-", "2",   "\"",          ";", ":",     "bf16",
                         "split_pairs", "a", "_", "sum", "row_partial", "<", "==",    "repeat="};
  for (int trial = 0; trial < 30000; ++trial) {
    std::string text = trial % 2 ? "program p {\n a = tile(x[M, N])\n" : "";
    for (int i = 0; i < 12; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    Program program;
    expect_to_lie_in(text, mistakes_in(text, program));
  }
}

// Each of these repeats one thing. What is not linear in it takes minutes here.
TEST(ProgramTextFuzz, LongTextsAreRefused) {
  const auto repeated = [](const std::string& part, int count) {
    std::string text = "program p {\n  a = tile(x[M, N])\n";
    for (int i = 0; i < count; ++i) {
      for (const char c : part) c == '#' ? text += std::to_string(i) : text += c;
    }
    return text;
  };
  for (const char* part : {"  v# = a\n", "(", "  b# = nothing#\n", "tile(y#[M, N]) + ", "[", "\"",
                           "a, ", "  store(o#, a * a * a)\n", "-", "x = ", "\n", "#!"}) {
    SCOPED_TRACE(part);
    Program program;
    const std::string text = repeated(part, 300000);
    expect_to_lie_in(text, mistakes_in(text, program));
  }
}

}  // namespace
}  // namespace coda
