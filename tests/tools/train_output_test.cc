// SPDX-License-Identifier: Apache-2.0
// What a person sees of a training run, and of a sample: how far it is, the loss curve, a text,
// held-out bits a byte beside xz's, the fused plan beside the unfused one; in the terminal and as
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

class TrainOutput : public testing::Test {
 protected:
  CommandResult train(const Words& flags) const {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i % 977) + "\n";
    Words command{"train",      "--data",   folder.write("text.txt", text),
                  "--out",      run(),      "--layers",
                  "1",          "--hidden", "16",
                  "--heads",    "2",        "--mlp",
                  "24",         "--batch",  "2",
                  "--sequence", "16",       "--steps",
                  "30"};
    command.insert(command.end(), flags.begin(), flags.end());
    return run_coda(command);
  }
  std::string run() const { return folder / "run"; }
  // The number that a match of the expression has in its group.
  static double number(const std::string& text, const std::string& expression) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(text, match, std::regex(expression))) << expression << text;
    return match.size() > 1 ? std::stod(match[1]) : -1;
  }

  TestFolder folder;
};

TEST_F(TrainOutput, ProgressThenTheLossCurveASampleAndHeldOutBits) {
  const CommandResult result = train({"--sample", "40", "--prompt", "line 1", "--report"});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::string& out = result.out;
  // The first step's line: loss, tokens a second, time left.
  EXPECT_TRUE(std::regex_search(
      out, std::regex("step +1/30  loss [0-9.]+  [0-9.]+[kM]? tokens/s  [0-9: ]+s? ?left")))
      << out;
  EXPECT_THAT(out, HasSubstr("step 30: held-out loss "));
  EXPECT_THAT(out, HasSubstr("┤"));  // the curve
  EXPECT_THAT(out, HasSubstr("a sample of its text:\n----\nline 1"));
  const std::string svg = read_bytes(fs::path(run()) / "loss_curve.svg");
  EXPECT_THAT(svg, HasSubstr("<polyline"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  // A byte of a new model is 8 bits, or a few less after thirty steps.
  const double bits = number(out, "this model +([0-9.]+)\n");
  EXPECT_GT(bits, 1);
  EXPECT_LT(bits, 8.1);
  if (out.find("xz -9: not found") == std::string::npos) {
    EXPECT_GT(number(out, "xz -9 of it +([0-9.]+)\n"), 0.5);
    EXPECT_GT(number(out, "behind the training text +([0-9.]+)\n"), 0);
  }
  const double fused = number(out, "  fused +[0-9]+ +[0-9.]+ ms +([0-9.]+) MB");
  const double unfused = number(out, "unfused +[0-9]+ +[0-9.]+ ms +([0-9.]+) MB");
  EXPECT_GT(unfused, fused);
}

// A step that random weights need would undo what trained ones know.
TEST_F(TrainOutput, TheRateDependsOnWhereTheWeightsComeFrom) {
  EXPECT_EQ(number(train({"--sample", "0", "--steps", "1"}).out, "learning rate up to ([0-9.e-]+)"),
            0.004);
  const auto from = [&](const Words& flags) {
    return number(run_coda(Words{"train", "--data", folder / "text.txt", "--out", folder / "next",
                                 "--overwrite", "--init", run(), "--sequence", "16", "--sample",
                                 "0", "--steps", "1"} +
                           flags)
                      .out,
                  "learning rate up to ([0-9.e-]+)");
  };
  EXPECT_EQ(from({}), 5e-5);
  EXPECT_EQ(from({"--lr", "0.01"}), 0.01);
}

// --config takes what --init, eval and sample take: a model's folder, or that of a run.
TEST_F(TrainOutput, SizesComeFromARunOrACheckpoint) {
  const CommandResult first = train({"--sample", "0"});
  ASSERT_EQ(first.status, 0) << first.err;
  const auto model = [](const CommandResult& result) {
    return result.out.substr(0, result.out.find('\n'));
  };
  for (const std::string& from : {run(), run() + "/latest"}) {
    const CommandResult other =
        run_coda({"train", "--config", from, "--data", folder / "text.txt", "--out", folder / "new",
                  "--overwrite", "--steps", "1", "--sequence", "16", "--sample", "0"});
    EXPECT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(model(other), model(first));
  }
}

TEST_F(TrainOutput, ASampleIsAFunctionOfItsSeedAndGoesOnFromThePrompt) {
  ASSERT_EQ(train({"--sample", "0"}).status, 0);
  const auto sample = [&](const std::string& seed) {
    const CommandResult result =
        run_coda({"sample", run(), "--prompt", "line 4", "--tokens", "30", "--seed", seed});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string text = sample("3");
  EXPECT_THAT(text, StartsWith("line 4"));
  EXPECT_EQ(text.size(), 6U + 30 + 1);  // the prompt, its bytes, a line end
  EXPECT_EQ(sample("3"), text);
  EXPECT_NE(sample("4"), text);
  const CommandResult of_ids = run_coda(
      {"sample", run(), "--prompt-ids", "108,105,110,101,32,52", "--tokens", "30", "--seed", "3"});
  EXPECT_EQ("line 4" + of_ids.out, text);
}

}  // namespace
}  // namespace coda
