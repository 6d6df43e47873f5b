// SPDX-License-Identifier: Apache-2.0
// What `coda train --data FOLDER` reads of a folder.
#include <gtest/gtest.h>

#include <regex>

#include "tools/run_command.h"

namespace coda {
namespace {

// Tokens are the texts' bytes, and one between two texts.
size_t tokens_read(const std::string& folder, const std::string& out) {
  const CommandResult result =
      run_coda({"train",      "--data", folder,    "--out", out,     "--overwrite", "--layers", "1",
                "--hidden",   "8",      "--heads", "2",     "--mlp", "8",           "--batch",  "2",
                "--sequence", "16",     "--steps", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::smatch match;
  const std::regex line(": ([0-9]+) tokens to train on, ([0-9]+) held out");
  if (!std::regex_search(result.out, match, line)) {
    ADD_FAILURE() << result.out;
    return 0;
  }
  return std::stoul(match[1]) + std::stoul(match[2]);
}

// Which files those are in all: tests/io/text_files_test.cc.
TEST(TrainingData, OfAFolderIsAllItsTextsButHiddenIgnoredAndGeneratedOnes) {
  const TestFolder folder;
  folder.write("data/.gitattributes", "*.inc linguist-generated\n");
  folder.write("data/.gitignore", "*.log\n");
  folder.write("data/text.txt", std::string(3000, 'a'));
  folder.write("data/sub/more.txt", std::string(900, 'b'));
  folder.write("data/table.inc", std::string(500, '1'));
  folder.write("data/a.log", std::string(700, '2'));
  EXPECT_EQ(tokens_read(folder / "data", folder / "run"), 3000 + 1 + 900u);
}

}  // namespace
}  // namespace coda
