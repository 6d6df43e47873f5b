// SPDX-License-Identifier: Apache-2.0
// docs/authoring.md as it stands there: each example computes its formula, which stands behind it,
// each mistake is told as the page says, and the page fits a language model's prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tools/run_command.h"

namespace coda {
namespace authoring {
namespace {

using testing::HasSubstr;

constexpr const char* kPage = CODA_SOURCE_DIR "/docs/authoring.md";

struct CodeBlock {
  std::string word;  // behind the fence: "coda", "formula"
  std::string text;
  int line = 0;
};

std::vector<CodeBlock> blocks_of_page() {
  std::ifstream page(kPage);
  std::vector<CodeBlock> blocks;
  bool is_inside = false;
  int number = 0;
  for (std::string line; std::getline(page, line);) {
    ++number;
    if (!line.starts_with("```")) {
      if (is_inside) blocks.back().text += line + "\n";
      continue;
    }
    is_inside = !is_inside;
    if (is_inside) blocks.push_back({line.substr(3), "", number});
  }
  return blocks;
}

// An example: programs one behind the other, then the formula of what they store.
TEST(Authoring, EachExampleComputesItsFormula) {
  int examples = 0;
  Words files;
  TestFolder folder;
  for (const CodeBlock& block : blocks_of_page()) {
    if (block.word == "coda") {
      const std::string name = "program" + std::to_string(block.line) + ".coda";
      files.push_back(folder.write(name, block.text));
    }
    if (block.word != "formula") continue;
    SCOPED_TRACE(std::string(kPage) + ":" + std::to_string(block.line));
    ASSERT_FALSE(files.empty());
    const CommandResult result = run_coda(Words{"check", "--backend", "cpu", "--configurations",
                                                "2", "--brief", "--formula", block.text} +
                                          files);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
    files.clear();
    ++examples;
  }
  EXPECT_TRUE(files.empty()) << "an example without a formula";
  EXPECT_EQ(examples, 10);
}

TEST(Authoring, EachMistakeIsToldAsThePageSays) {
  const std::vector<CodeBlock> blocks = blocks_of_page();
  const TestFolder folder;
  int mistakes = 0;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (blocks[i].word != "coda wrong") continue;
    SCOPED_TRACE(std::string(kPage) + ":" + std::to_string(blocks[i].line));
    ASSERT_EQ(blocks[i + 1].word, "text");
    const CommandResult result =
        run_coda({"check", folder.write("wrong.coda", blocks[i].text), "--backend", "cpu"});
    EXPECT_EQ(result.status, 1);
    std::istringstream lines(blocks[i + 1].text);
    for (std::string line; std::getline(lines, line); ++mistakes)
      EXPECT_THAT(result.err, HasSubstr(line));
  }
  EXPECT_GE(mistakes, 5);
}

TEST(Authoring, ThePageFitsAPrompt) {
  std::ifstream page(kPage);
  int lines = 0;
  for (std::string line; std::getline(page, line);) ++lines;
  EXPECT_GT(lines, 100);
  EXPECT_LE(lines, 400);
}

}  // namespace
}  // namespace authoring
}  // namespace coda
