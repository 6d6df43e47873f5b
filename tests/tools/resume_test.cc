// SPDX-License-Identifier: Apache-2.0
// A run that is ended at any moment and resumed gives bitwise the weights of one that was not.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kLast = "step-000120";
constexpr const char* kEndless = "1000000";  // steps of a run that a signal ends

// A checkpoint is there once its folder has its name; the link `latest` follows a moment later.
bool is_checkpoint(const std::string& name) {
  return name.starts_with("step-") && !name.ends_with(".tmp");
}

// The words with other values of flags; what they lack is added.
Words with(Words words, const Words& flags) {
  for (size_t i = 0; i < flags.size(); i += 2) {
    const auto found = std::ranges::find(words, flags[i]);
    if (found != words.end()) {
      *(found + 1) = flags[i + 1];
    } else {
      words = words + Words{flags[i], flags[i + 1]};
    }
  }
  return words;
}

class Resume : public testing::Test {
 protected:
  Resume() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * i % 977) + "\n";
    data = folder.write("text.txt", text);
  }
  Words command(const std::string& out, const std::string& steps = "120") const {
    return {"train", "--data",   data,   "--out",        out, "--layers",
            "1",     "--hidden", "16",   "--heads",      "2", "--mlp",
            "24",    "--batch",  "5",    "--accumulate", "2", "--sequence",
            "16",    "--steps",  steps,  "--save-every", "7", "--sample",
            "0",     "--lr",     "1e-2", "--loss-rows",  "64"};  // two blocks
  }
  Words resume(const std::string& out) const {
    return {"train",    "--out",        out, "--data",   data,
            "--resume", "--save-every", "7", "--sample", "0"};
  }
  void expect_same_end(const std::string& a, const std::string& b) const {
    expect_same_weights(a, b);
    EXPECT_TRUE(read_bytes(a + "/" + kLast + "/run_state.json") ==
                read_bytes(b + "/" + kLast + "/run_state.json"));
  }
  static void expect_same_weights(const std::string& a, const std::string& b) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
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

// Which products are in 8 bits belongs to what a run is.
TEST_F(Resume, OfARunWithWeightsOutOfEightBitsKeepsThemOut) {
  const std::string out = folder / "run";
  const Words eight{"--hidden", "32", "--dtype", "fp8", "--fp8-except", "*.mlp.*,*.embed*"};
  const CommandResult begun =
      run_coda(command(out, "1000") + eight, {.while_running = [&](pid_t child) {
                 wait_for_file(child, out + "/step-000007");
                 kill(child, SIGTERM);
               }});
  EXPECT_EQ(begun.status, 130) << begun.err;
  EXPECT_THAT(begun.out, HasSubstr("of parameters that are excepted"));
  const CommandResult resumed = run_coda(resume(out));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("of parameters that are excepted"));
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

// What ends a terminal, a service or a pipe stops the run as Ctrl-C does.
TEST_F(Resume, AfterASignalOrAClosedPipe) {
  const std::string whole = folder / "whole";
  ASSERT_EQ(run_coda(command(whole)).status, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    SCOPED_TRACE(strsignal(signal));
    const std::string stopped = folder / "stopped" + std::to_string(signal);
    int pipe_ends[2];
    ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    // As soon as the first checkpoint is there: the run is then under way.
    const CommandResult result = run_coda(
        command(stopped) + Words{"--eval-every", "1"},
        {.output = signal == SIGPIPE ? pipe_ends[1] : -1, .while_running = [&](pid_t child) {
           close(pipe_ends[1]);
           wait_for_file(child, stopped + "/step-000007");
           close(pipe_ends[0]);
           if (signal != SIGPIPE) kill(child, signal);
         }});
    ASSERT_EQ(result.status, 130) << result.err;
    EXPECT_THAT(signal == SIGPIPE ? result.err : result.out,
                testing::HasSubstr("continue with: coda train --out '" + stopped + "' --data '" +
                                   data + "' --resume"));
    ASSERT_EQ(run_coda(resume(stopped)).status, 0);
    expect_same_weights(whole, stopped);
  }
}

TEST_F(Resume, AfterASignalRightBehindTheFirstCheckpoint) {
  const std::string out = folder / "run";
  const CommandResult result = run_coda(command(out, kEndless), {.while_running = [&](pid_t child) {
                                          wait_for_file(child, out + "/step-000000");
                                          kill(child, SIGUSR1);
                                        }});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.out, testing::HasSubstr("continue with:"));
}

TEST_F(Resume, OfAFinishedRunSaysSoAndGoesOnWithMoreSteps) {
  const std::string out = folder / "run";
  Words start = command(out);
  start[std::ranges::find(start, "120") - start.begin()] = "20";
  ASSERT_EQ(run_coda(start).status, 0);
  const CommandResult finished = run_coda(resume(out));
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.out, testing::HasSubstr("had finished: all of its 20 steps are done"));
  const CommandResult fewer = run_coda(resume(out) + Words{"--steps", "10"});
  EXPECT_THAT(fewer.err, testing::HasSubstr("--steps 10: the run has done 20 steps already"));
  EXPECT_EQ(run_coda(resume(out) + Words{"--steps", "30"}).status, 0);
  EXPECT_TRUE(fs::exists(out + "/step-000030"));
}

// The rename may happen between two checkpoints or while one is written.
TEST_F(Resume, AFolderThatIsRenamedUnderARunIsMadeAnewAndSaid) {
  const std::string out = folder / "run";
  std::string second;  // what another run in the new folder says
  const CommandResult result = run_coda(command(out, kEndless), {.while_running = [&](pid_t child) {
                                          wait_for_file(child, out + "/latest");
                                          fs::rename(out, folder / "elsewhere");
                                          wait_for_file(child, out + "/latest");
                                          second = run_coda(resume(out)).err;
                                          kill(child, SIGTERM);
                                        }});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(second, HasSubstr("another coda train is at work there"));
  EXPECT_THAT(result.out, HasSubstr("the run's folder was removed or renamed"));
  EXPECT_FALSE(names_in(out).empty());
}

TEST_F(Resume, AnIgnoredSignalStaysIgnored) {
  const std::string out = folder / "run";
  const CommandResult result =
      run_coda(command(out), {.ignored_signal = SIGHUP, .while_running = [&](pid_t child) {
                                wait_for_file(child, out + "/step-000007");
                                kill(child, SIGHUP);
                              }});
  EXPECT_EQ(result.status, 0) << result.err;
}

// Everything is saved by then.
TEST_F(Resume, CtrlCEndsTheSampleOfAFinishedRun) {
  const std::string out = folder / "run";
  const CommandResult result =
      run_coda(command(out) + Words{"--sample", "1000000000"}, {.while_running = [&](pid_t child) {
                 wait_for_file(child, out + "/loss_curve.svg");
                 usleep(100000);
                 kill(child, SIGINT);
               }});
  EXPECT_EQ(result.status, 128 + SIGINT);
  EXPECT_TRUE(fs::exists(out + "/" + kLast + "/model.safetensors"));
}

// With names relative to where the run was started, one of which has gone.
TEST_F(Resume, FromAnotherFolderAndWithoutWhatInitNamed) {
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  ASSERT_EQ(run_coda(command(folder / "a/first")).status, 0);
  const Words start{"train",   "--init", "first",      "--data", "../text.txt", "--out", "second",
                    "--steps", "4",      "--sequence", "16",     "--sample",    "0"};
  ASSERT_EQ(run_coda(start, {.folder = folder / "a"}).status, 0);
  fs::remove_all(folder / "a/first");
  fs::remove_all(folder / "a/second/step-000004");
  const CommandResult resumed = run_coda(
      {"train", "--out", "../a/second", "--data", "../text.txt", "--resume", "--sample", "0"},
      {.folder = folder / "b"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(fs::exists(folder / "a/second/step-000004/model.safetensors"));
}

TEST_F(Resume, AChangedStateIsRefusedByTheNameOfItsField) {
  const std::string out = folder / "run";
  ASSERT_EQ(run_coda(command(out)).status, 0);
  const std::string file = out + "/" + kLast + "/run_state.json";
  const std::string good = read_bytes(file);
  const auto refused = [&](const std::string& what, const std::string& by,
                           const std::string& said) {
    std::string text = good;
    ASSERT_NE(text.find(what), std::string::npos) << what;
    folder.write("run/" + std::string(kLast) + "/run_state.json",
                 text.replace(text.find(what), what.size(), by));
    const CommandResult result = run_coda(resume(out));
    EXPECT_EQ(result.status, 1) << what;
    EXPECT_THAT(result.err,
                testing::AllOf(testing::HasSubstr("run_state.json"), testing::HasSubstr(said)));
  };
  refused("\"step\":120", "\"step\":119", "'step'");
  refused("\"step\":120,", "", "no 'step'");
  refused("\"seed\":1,", "", "no 'seed'");
  refused("\"seed\":1,", "\"seed\":2,", "'seed'");
  refused("\"fingerprint\"", "\"finger\"", "'fingerprint'");
  refused("\"data\":", "\"date\":", "'data'");
  refused("\"train_losses\"", "\"losses\"", "'train_losses'");
  refused("\"steps\":\"120\"", "\"steps\":\"100\"", "'step'");
  // Each setting, given or not, stands there.
  refused("\"steps\":", "\"stops\":", "'options' has no 'steps'");
  refused("\"warmup\":", "\"warm\":", "'options' has no 'warmup'");
  refused("\"clip\":", "\"clap\":", "'options' has no 'clip'");
  refused("\"beta2\":", "\"bear2\":", "'options' has no 'beta2'");
  refused("\"optimizer\":\"adamw\"", "\"optimizer\":\"sdg\"", "'optimizer'");
}

// A run that resumes from the older of its two checkpoints ends with the same bits.
TEST_F(Resume, GoesOnWithTheOptimizerThatItWasStartedWith) {
  for (const std::string optimizer : {"adamw", "sgd", "lion"}) {
    const std::string out = folder / optimizer;
    ASSERT_EQ(run_coda(command(out) + Words{"--optimizer", optimizer, "--decay", "0.2"}).status, 0);
    const std::string whole = folder / ("whole_" + optimizer);
    fs::copy(out, whole, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove_all(out + "/" + kLast);
    const CommandResult other = run_coda(resume(out) + Words{"--optimizer", "lion"});
    EXPECT_THAT(other.err, HasSubstr("--optimizer: a resumed run keeps the settings"));
    ASSERT_EQ(run_coda(resume(out)).status, 0);
    expect_same_end(out, whole);
  }
  const CommandResult wrong = run_coda(command(folder / "no") + Words{"--momentum", "0.5"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--momentum is no setting of adamw"));
}

// Types of weights, moments and products, with what else holds or makes state: passes that add up,
// several processes, layers that are recomputed.
TEST_F(Resume, GivesTheSameBitsForEveryType) {
  const std::pair<std::string, Words> kinds[] = {
      {"bf16", {"--dtype", "bf16", "--moments", "bf16"}},
      {"bf16 alone", {"--dtype", "bf16", "--moments", "bf16", "--master-weights", "bf16"}},
      {"fp8", {"--dtype", "fp8"}},
      {"fp8-kept", {"--dtype", "fp8-kept", "--optimizer", "lion", "--recompute", "layer"}},
      {"fp8 of two", {"--dtype", "fp8", "--processes", "2", "--moments", "bf16"}},
  };
  for (const auto& [name, more] : kinds) {
    SCOPED_TRACE(name);
    const std::string out = folder / name;
    const Words size{"--hidden", "32", "--batch", "4", "--steps", "8", "--save-every", "4"};
    const CommandResult begun = run_coda(with(command(out), size) + more);
    ASSERT_EQ(begun.status, 0) << begun.err;
    const std::string whole = folder / ("whole " + name);
    fs::copy(out, whole, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    ASSERT_TRUE(fs::remove_all(out + "/step-000008") > 0);
    const CommandResult resumed =
        run_coda(with(resume(out), {"--save-every", "4"}) +
                 (name == "fp8 of two" ? Words{"--processes", "2"} : Words{}));
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("going on from"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "run_state.json"})
      EXPECT_TRUE(read_bytes(out + "/step-000008/" + file) ==
                  read_bytes(whole + "/step-000008/" + file))
          << file << " differs";
  }
}

// Earlier versions had only AdamW and fp32 master weights, and their checkpoints do not name them.
TEST_F(Resume, ACheckpointThatNamesNoOptimizerIsOfAdamW) {
  const std::string out = folder / "run";
  ASSERT_EQ(run_coda(command(out)).status, 0);
  const std::string whole = folder / "whole";
  fs::copy(out, whole, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::remove_all(out + "/" + kLast);
  const fs::path older = fs::canonical(out + "/step-000119");
  std::string text = read_bytes(older / "run_state.json");
  for (const std::string named : {"\"optimizer\":\"adamw\",", "\"optimizer\":\"adamw\","}) {
    ASSERT_NE(text.find(named), std::string::npos);
    text.erase(text.find(named), named.size());
  }
  EXPECT_EQ(text.find("\"optimizer\""), std::string::npos);
  const std::string later = R"("master-weights":"fp32",)";
  ASSERT_NE(text.find(later), std::string::npos);
  text.erase(text.find(later), later.size());
  std::ofstream(older / "run_state.json") << text;
  ASSERT_EQ(run_coda(resume(out)).status, 0);
  expect_same_end(out, whole);
}

TEST_F(Resume, NoDebrisOfAKilledWriteStaysAfterTheStart) {
  const std::string out = folder / "run";
  ASSERT_EQ(run_coda(command(out)).status, 0);
  folder.write("run/step-000130.tmp/model.safetensors", "half");
  folder.write("run/.coda-1-2.tmp", "half of a curve");
  fs::create_symlink("nowhere", out + "/latest.tmp");
  ASSERT_EQ(run_coda(resume(out)).status, 0);
  for (const std::string& name : names_in(out)) {
    EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace coda
