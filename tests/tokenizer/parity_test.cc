// SPDX-License-Identifier: Apache-2.0
// Ids and texts are those of the Python package `tokenizers`, for small tokenizers of each kind
// that it trains, on texts that are hard and on random ones: tests/parity/tokenizers_reference.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "coda/tokenizer.h"
#include "io/mapped_file.h"
#include "io/temp_folder.h"
#include "parity/python_modules.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const std::string& hexadecimal) {
  std::string bytes;
  for (size_t i = 0; i < hexadecimal.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  return bytes;
}

// Of a stream that is given one id at a time, in all.
std::string streamed(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t before) {
  TextStream stream(tokenizer, ids.first(before));
  std::string text = tokenizer.decode(ids.first(before));
  for (const int32_t id : ids.subspan(before)) text += stream.push(id);
  return text + stream.finish();
}

void check(const fs::path& folder) {
  SCOPED_TRACE(folder.filename());
  const Tokenizer tokenizer(folder);
  TextEncoder encoder(tokenizer);
  for (const auto& expected : nlohmann::json::parse(io::read_file(folder / "cases.json"))) {
    const std::string text = bytes_of(expected["bytes"]);
    SCOPED_TRACE("the text " + expected["bytes"].get<std::string>());
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.encode(text), ids);
    ASSERT_EQ(tokenizer.encode(text, false), expected["plain"].get<std::vector<int32_t>>());
    std::vector<int32_t> remembered;
    encoder.append(text, true, remembered);
    ASSERT_EQ(remembered, ids);
    ASSERT_EQ(tokenizer.decode(ids), expected["text"].get<std::string>());
    ASSERT_EQ(tokenizer.decode(ids, false), expected["all"].get<std::string>());
    ASSERT_EQ(streamed(tokenizer, ids, 0), expected["text"].get<std::string>());
  }
  for (const auto& expected : nlohmann::json::parse(io::read_file(folder / "decodings.json"))) {
    SCOPED_TRACE(expected["ids"]);
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(tokenizer.decode(ids), expected["text"].get<std::string>());
    ASSERT_EQ(tokenizer.decode(ids, false), expected["all"].get<std::string>());
  }
}

class TokenizerParity : public testing::Test {
 protected:
  void SetUp() override {
    if (!python) GTEST_SKIP() << kNoJudges;
  }
  // Runs a script of tests/parity with a folder as its argument.
  void run(const char* script, const fs::path& on) const {
    const std::string command = *python + " " + CODA_SOURCE_DIR + "/tests/parity/" + script + " " +
                                on.string() + " > " + (folder / "log").string() + " 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << io::read_file(folder / "log");
  }

  const std::optional<std::string> python = python_with("tokenizers", CODA_SOURCE_DIR);
  TempFolder folder;
};

TEST_F(TokenizerParity, EachKindGivesTheIdsAndTextsOfTokenizers) {
  run("tokenizers_reference.py", folder / "kinds");
  for (const auto& kind : fs::directory_iterator(folder / "kinds")) check(kind.path());
}

std::vector<uint32_t> all_points() {
  std::vector<uint32_t> points;
  for (uint32_t point = 0; point < tokenizer::kCodePoints; ++point)
    if (point < 0xD800 || point >= 0xE000) points.push_back(point);  // without surrogates
  return points;
}

// For each run of code points that a pattern matches: the first one, and the first one after it.
std::vector<uint32_t> edges_of(const tokenizer::Pattern& pattern) {
  std::vector<uint32_t> edges;
  for (const uint32_t point : all_points()) {
    const std::string text = tokenizer::utf8(point);
    tokenizer::Range match;
    const bool is_in = tokenizer::Matches(pattern, text).next(match);
    if (is_in != (edges.size() % 2 == 1)) edges.push_back(point);
  }
  return edges;
}

TEST_F(TokenizerParity, ClassesAndFormsAreRightForEveryCodePoint) {
  run("unicode_reference.py", folder.path());
  const auto classes = nlohmann::json::parse(io::read_file(folder / "classes.json"));
  for (const auto& [regex, expected] : classes.items()) {
    const auto pattern = regex.empty() ? tokenizer::Pattern::of_digits(true)
                                       : tokenizer::Pattern::of_regex(regex, "a test");
    EXPECT_EQ(edges_of(pattern), expected.get<std::vector<uint32_t>>()) << regex;
  }
  std::string text;
  for (const uint32_t point : all_points()) text += "a\u0345" + tokenizer::utf8(point) + "\u0334";
  for (const bool composes : {true, false}) {
    const std::string made =
        tokenizer::in_normal_form({.composes = composes, .compatible = !composes}, text);
    const std::string expected = io::read_file(folder / (composes ? "NFC" : "NFKD"));
    const auto [here, there] = std::ranges::mismatch(made, expected);
    EXPECT_TRUE(here == made.end() && there == expected.end())
        << "behind " << std::count(made.begin(), here, 'a') << " letters";
  }
}

}  // namespace
}  // namespace coda
