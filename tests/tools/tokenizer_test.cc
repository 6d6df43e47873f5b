// SPDX-License-Identifier: Apache-2.0
// Text in and out of the command, for models whose tokens are those of a tokenizer.
#include <gtest/gtest.h>

#include <algorithm>

#include "tokenizer/small_tokenizer.h"
#include "tools/run_command.h"

namespace coda {
namespace {

class TokenizedText : public testing::Test {
 protected:
  TokenizedText() {
    std::string text;
    for (int i = 0; i < 150; ++i) text += "line " + std::to_string(1 + i % 4) + "\n";
    data = folder.write("text.txt", text);
    tokenizer = folder.write("tokenizer.json", small_tokenizer());
  }
  CommandResult train(const std::string& out, const Words& flags) const {
    return run_coda(
        Words{"train", "--data", data, "--out", folder / out, "--sequence", "16", "--batch", "2"} +
        flags);
  }

  const Words sizes{"--layers", "1", "--hidden", "8", "--heads", "2", "--steps", "2"};
  TestFolder folder;
  std::string data;
  std::string tokenizer;
};

TEST_F(TokenizedText, ARunKeepsItsTokenizerAndGoesOnWithIt) {
  const CommandResult trained =
      train("run", sizes + Words{"--tokenizer", tokenizer, "--sample", "5", "--prompt", "line"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_NE(trained.out.find("vocabulary " + std::to_string(kSmallTokens)), std::string::npos);
  // <s>; then "▁line", "▁", a digit and a line's end, but "line" of three tokens behind a line's
  // end.
  EXPECT_NE(trained.out.find("tokens to train on"), std::string::npos) << trained.out;
  const std::string latest = folder / "run/latest/tokenizer.json";
  EXPECT_EQ(read_bytes(latest), small_tokenizer());
  EXPECT_NE(read_bytes(folder / "run/latest/generation_config.json").find("[2]"),
            std::string::npos);
  EXPECT_EQ(run_coda({"train", "--data", data, "--out", folder / "run", "--resume"}).status, 0);
  const CommandResult tuned = train("tuned", {"--init", folder / "run", "--steps", "1"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_EQ(read_bytes(folder / "tuned/latest/tokenizer.json"), small_tokenizer());
  const CommandResult both =
      train("other", {"--init", folder / "run", "--tokenizer", tokenizer, "--steps", "1"});
  EXPECT_EQ(both.status, 1);
  EXPECT_NE(both.err.find("--tokenizer"), std::string::npos) << both.err;
}

TEST_F(TokenizedText, ATextIsEvaluatedAsTheIdsItHas) {
  ASSERT_EQ(train("run", sizes + Words{"--tokenizer", tokenizer}).status, 0);
  const std::string text = folder.write("short.txt", "line line1");
  const std::string ids =
      folder.write("ids", {1, 0, '\x0b', 1, '\x0b', 1, '\x0c', 1});  // 1, 267, 267, 268
  const auto loss = [](const CommandResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out.substr(0, result.out.find(",\"seconds"));
  };
  const std::string of_text = loss(run_coda({"eval", folder / "run", "--data", text, "--json"}));
  EXPECT_NE(of_text.find("\"predicted_tokens\":3"), std::string::npos) << of_text;
  EXPECT_EQ(of_text, loss(run_coda({"eval", folder / "run", "--ids", ids, "--json"})));
}

TEST_F(TokenizedText, ASampleIsTextOrIdsThatAreTheSame) {
  ASSERT_EQ(train("run", sizes + Words{"--tokenizer", tokenizer}).status, 0);
  const auto sample = [&](const Words& flags) {
    const CommandResult result =
        run_coda(Words{"sample", folder / "run", "--tokens", "12", "--temperature", "0"} + flags);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string text = sample({"--prompt", "line 1"});
  EXPECT_TRUE(text.starts_with("line 1")) << text;
  const std::string ids = sample({"--prompt", "line 1", "--print-ids", "--no-stop"});
  EXPECT_EQ(std::ranges::count(ids, ' '), 12);
  EXPECT_EQ(ids, sample({"--prompt-ids", "1,267,259,268", "--print-ids", "--no-stop"}));
  sample({});  // from the start of a text
}

}  // namespace
}  // namespace coda
