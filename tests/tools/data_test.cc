// SPDX-License-Identifier: Apache-2.0
// What `coda train --data FOLDER` reads of a folder: in a Git checkout the texts that Git tracks,
// but for those that .gitattributes calls generated.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "tools/run_command.h"

namespace coda {
namespace {

bool run_git(const std::string& folder, const std::string& arguments) {
  return std::system(("git -C " + folder + " " + arguments + " > /dev/null 2>&1").c_str()) == 0;
}

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

TEST(TrainingData, OfAGitCheckoutIsWhatIsTrackedAndNotGenerated) {
  const TestFolder folder;
  const std::string checkout = folder / "checkout";
  const std::string attributes = "*.inc linguist-generated\nmade/** linguist-generated\n";
  folder.write("checkout/.gitattributes", attributes);
  folder.write("checkout/text.txt", std::string(3000, 'a'));
  folder.write("checkout/table.inc", std::string(500, '1'));
  folder.write("checkout/made/table.txt", std::string(700, '2'));
  if (!run_git(checkout, "init") || !run_git(checkout, "add .")) GTEST_SKIP() << "no Git";
  folder.write("checkout/untracked.txt", std::string(900, 'b'));
  EXPECT_EQ(tokens_read(checkout, folder / "run"), 3000 + 1 + attributes.size());
}

}  // namespace
}  // namespace coda
