// SPDX-License-Identifier: Apache-2.0
// The parser of graphs on broken text: whatever is done to the text of a graph, it is either parsed
// to a graph that prints, is laid out and parses to itself, or refused with mistakes that lie in
// the text; nothing else is thrown, and nothing crashes or hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coda/error.h"
#include "coda/graph_text.h"
#include "coda/program_error.h"
#include "graph_text/all_ops.h"
#include "plan/random_graphs.h"
#include "program/mutated_text.h"

namespace coda {
namespace {

std::vector<std::string> texts_of_graphs() {
  std::vector<std::string> texts = {text(tests::graph_of_all_ops())};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomGraph random(seed);
    texts.push_back(text(random.block.graph, random.block.request.outputs));
    texts.push_back(texts[0]);  // as often as all others
  }
  return texts;
}

// Whether the text is a graph; else its mistakes are looked at.
bool is_parsed_or_refused(const std::string& broken) {
  std::vector<Diagnostic> mistakes;
  try {
    parse_graph(broken);
    return true;
  } catch (const ProgramError& error) {
    mistakes = error.mistakes();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what() << "\n" << broken;
    return false;
  }
  EXPECT_FALSE(mistakes.empty());
  const int64_t lines = 1 + std::count(broken.begin(), broken.end(), '\n');
  for (const Diagnostic& mistake : mistakes) {
    EXPECT_GE(mistake.line, 1);
    EXPECT_LE(mistake.line, lines) << mistake.message << "\n" << broken;
    EXPECT_LE(mistake.column, static_cast<int64_t>(broken.size()) + 1);
    EXPECT_FALSE(mistake.message.empty());
    EXPECT_EQ(mistake.message.find('\x01'), std::string::npos) << mistake.message;
  }
  return false;
}

TEST(GraphTextFuzz, BrokenTextIsParsedOrRefused) {
  const std::vector<std::string> texts = texts_of_graphs();
  int parsed = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 30000; ++seed) {
    SCOPED_TRACE(seed);
    const std::string broken = tests::TextMutator(seed).mutate(texts[seed % texts.size()]);
    if (!is_parsed_or_refused(broken)) {
      ++refused;
      continue;
    }
    ++parsed;
    if (parsed % 4 != 0) continue;
    const std::string printed = text(parse_graph(broken));
    ASSERT_EQ(text(parse_graph(printed)), printed) << broken;
    ASSERT_EQ(text(parse_graph(format_graph(broken))), printed) << broken;
  }
  // Both happen: otherwise this tests little.
  EXPECT_GT(parsed, 500);
  EXPECT_GT(refused, 10000);
}

TEST(GraphTextFuzz, RandomTokensAreRefused) {
  std::mt19937_64 random(1);
  const char* words[] = {"graph",
                         "g",
                         "{",
                         "}",
                         "\n",
                         "=",
                         "store",
                         "(",
                         ")",
                         ",",
                         "x",
                         "[",
                         "M",
                         "]",
                         "gemm",
                         "input",
                         "+",
                         "*",
                         "-",
                         "2",
                         "\"",
                         ";",
                         ":",
                         "bf16",
                         "split_pairs",
                         "a",
                         "_",
                         "sum",
                         "reduce_rows",
                         "<",
                         "attention(",
                         "heads=",
                         "again(",
                         "concat_columns",
                         "top_k_mask(",
                         "slice_columns(",
                         "0"};
  for (int trial = 0; trial < 30000; ++trial) {
    std::string text = trial % 2 ? "graph g {\n a = input(x[M, N])\n" : "";
    for (int i = 0; i < 12; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    is_parsed_or_refused(text);
  }
}

// Each of these repeats one thing. What is not linear in it takes minutes here.
TEST(GraphTextFuzz, LongTextsAreRefused) {
  const auto repeated = [](const std::string& part, int count) {
    std::string text = "graph g {\n  a = input(x[M, 1])\n  c0 = a\n";
    for (int i = 0; i < count; ++i) {
      for (const char c : part) {
        if (c == '#') {
          text += std::to_string(i);
        } else if (c == '@') {
          text += std::to_string(i + 1);
        } else {
          text += c;
        }
      }
    }
    return text;
  };
  for (const char* part :
       {"  v# = a\n", "(", "  b# = nothing#\n", "input(y#[M, N]) + ", "[", "\"", "a, ",
        "  store(o#, a * a * a)\n", "-", "x = ", "\n", "#!", "  c@ = c# * a\n", "  c@ = c# + a\n",
        "  c@ = c# * input(r#[M, 1])\n", "again("}) {
    SCOPED_TRACE(part);
    EXPECT_FALSE(is_parsed_or_refused(repeated(part, 200000)));
  }
  // Powers of powers, sums of sums, and columns beside columns grow exponentially, if at all.
  for (const char* part : {"  c@ = c# * c#\n", "  c@ = c# * c# + a\n",
                           "  c@ = concat_columns(c#, c#)\n", "  c@ = repeat_group(c#, 64)\n"}) {
    SCOPED_TRACE(part);
    is_parsed_or_refused(repeated(part, 3000) + "  store(y, c3000)\n}\n");
  }
}

}  // namespace
}  // namespace coda
