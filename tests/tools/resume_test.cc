// SPDX-License-Identifier: Apache-2.0
// A run that is ended at any moment and resumed gives bitwise the weights of one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kLast = "step-000120";

// A checkpoint is there once its folder has its name; the link `latest` follows a moment later.
bool is_checkpoint(const std::string& name) {
  return name.starts_with("step-") && !name.ends_with(".tmp");
}

class Resume : public testing::Test {
 protected:
  Resume() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * i % 977) + "\n";
    data = folder.write("text.txt", text);
  }
  Words command(const std::string& out) const {
    return {"train", "--data",   data,   "--out",        out, "--layers",
            "1",     "--hidden", "16",   "--heads",      "2", "--mlp",
            "24",    "--batch",  "5",    "--accumulate", "2", "--sequence",
            "16",    "--steps",  "120",  "--save-every", "7", "--sample",
            "0",     "--lr",     "1e-2", "--loss-rows",  "64"};  // two blocks
  }
  static Words resume(const std::string& out) {
    return {"train", "--out", out, "--resume", "--save-every", "7", "--sample", "0"};
  }
  void expect_same_end(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "run_state.json"}) {
      const std::string ours = read_bytes(fs::path(a) / kLast / file);
      EXPECT_FALSE(ours.empty()) << file;
      EXPECT_TRUE(ours == read_bytes(fs::path(b) / kLast / file)) << file << " differs";
    }
  }

  TestFolder folder;
  std::string data;
};

TEST_F(Resume, AfterKillsAtRandomMoments) {
  const std::string whole = folder / "whole";
  const std::string broken = folder / "broken";
  ASSERT_EQ(run_coda(command(whole)).status, 0);
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int kills = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const bool has_checkpoint = std::ranges::any_of(names_in(broken), is_checkpoint);
    const auto delay = static_cast<useconds_t>(5000 + random() % 120000);
    const CommandResult result = run_coda(has_checkpoint ? resume(broken) : command(broken),
                                          {.while_running = [&](pid_t child) {
                                            if (attempt >= 12) return;  // enough: let it end
                                            usleep(delay);
                                            kill(child, SIGKILL);
                                          }});
    if (result.status == 0) break;
    ASSERT_EQ(result.status, 128 + SIGKILL) << result.err;
    ++kills;
  }
  EXPECT_GT(kills, 0);
  expect_same_end(whole, broken);
}

TEST_F(Resume, AfterAKillBetweenACheckpointAndTheLinkToIt) {
  const std::string out = folder / "run";
  ASSERT_EQ(run_coda(command(out)).status, 0);
  ASSERT_TRUE(fs::remove(out + "/latest"));
  EXPECT_NE(run_coda(command(out)).status, 0) << "a run is there: it must not be started anew";
  const CommandResult resumed = run_coda(resume(out));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(fs::exists(out + "/" + kLast + "/model.safetensors"));
}

TEST_F(Resume, AfterCtrlC) {
  const std::string whole = folder / "whole";
  const std::string stopped = folder / "stopped";
  ASSERT_EQ(run_coda(command(whole)).status, 0);
  // Ctrl-C as soon as the first checkpoint is there: the run is then under way.
  const CommandResult result =
      run_coda(command(stopped), {.while_running = [&](pid_t child) {
                 for (int i = 0; i < 10000 && !fs::exists(stopped + "/step-000007"); ++i)
                   usleep(1000);
                 kill(child, SIGINT);
               }});
  ASSERT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("--resume"));
  ASSERT_EQ(run_coda(resume(stopped)).status, 0);
  expect_same_end(whole, stopped);
}

}  // namespace
}  // namespace coda
