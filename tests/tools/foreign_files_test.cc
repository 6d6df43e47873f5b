// SPDX-License-Identifier: Apache-2.0
// What the command did not write cannot harm: folders, checkpoints and states of somebody else's
// are read and nothing else, in time and memory that their sizes warrant, and messages about them
// are one short line that a terminal shows as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kGigabyte = int64_t{1} << 30;

const Words kTinyModel{"--layers", "1", "--hidden",   "8", "--heads",    "2",
                       "--mlp",    "8", "--batch",    "2", "--sequence", "8",
                       "--sample", "0", "--held-out", "0", "--steps",    "2"};

// One short line in words of ours, without escape codes.
void expect_our_line(const CommandResult& result, const std::string& said) {
  EXPECT_TRUE(result.status == 1 || result.status == 2) << result.status;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(std::all_of(result.err.begin(), result.err.end() - 1, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '\xff';
  })) << result.err;
  EXPECT_LT(result.err.size(), 1500u);
  EXPECT_THAT(result.err, HasSubstr(said));
  for (const char* theirs :
       {"filesystem error", "json.exception", "basic_string", "std::", "internal", "/src/", ".cc:"})
    EXPECT_THAT(result.err, Not(HasSubstr(theirs)));
}

class ForeignFiles : public testing::Test {
 protected:
  ForeignFiles() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i * i % 97) + "\n";
    data = folder.write("text.txt", text);
  }
  std::string checkpoint() const {
    const CommandResult result =
        run_coda(Words{"train", "--out", folder / "run", "--data", data} + kTinyModel);
    EXPECT_EQ(result.status, 0) << result.err;
    return folder / "run/step-000002";
  }

  TestFolder folder;
  std::string data;
};

// A program named git stands in front of the real one, and the folder is configured to run others.
TEST_F(ForeignFiles, ADataFolderRunsNothing) {
  const std::string marker = folder / "ran";
  for (const char* name : {"git", "evil"}) {
    fs::permissions(folder.write(std::string("bin/") + name, "#!/bin/sh\ntouch " + marker + "\n"),
                    fs::perms(0755));
  }
  const std::string evil = folder / "bin/evil";
  folder.write("data/.git/config",
               "[core]\n\trepositoryformatversion = 1\n\tfsmonitor = " + evil +
                   "\n[extensions]\n\tpartialClone = origin\n[remote \"origin\"]"
                   "\n\turl = file:///x\n\tpromisor = true\n\tuploadpack = " +
                   evil + "\n");
  folder.write("data/.git/HEAD", "ref: refs/heads/main\n");
  fs::create_directories(folder / "data/.git/objects");
  fs::create_directories(folder / "data/.git/refs");
  folder.write("data/a.txt", read_bytes(data));
  const CommandResult result =
      run_coda(Words{"train", "--out", folder / "run", "--data", folder / "data"} + kTinyModel,
               {.environment = {{"PATH", folder / "bin" + ":/usr/bin:/bin"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(fs::exists(marker));
}

// A state names data, a config and an initial model: none of them is opened, whatever it says.
TEST_F(ForeignFiles, AStateNamesDataOnlyAsText) {
  const std::string state = checkpoint() + "/run_state.json";
  const std::string good = read_bytes(state);
  const size_t at = good.find("\"data\":\"");
  ASSERT_NE(at, std::string::npos);
  const size_t end = good.find('"', at + 8);
  const std::string secret = folder.write("secret.txt", std::string(3000, 's'));
  const std::string theirs = secret + "'; echo \\u001b[2J" + std::string(1000, 'x');
  folder.write("run/step-000002/run_state.json",
               good.substr(0, at) + "\"config\":\"" + (folder / "none") + "\",\"init\":\"" +
                   (folder / "none") + "\",\"data\":\"" + theirs + good.substr(end));
  const Words resume{"train", "--out", folder / "run", "--resume", "--sample", "0"};
  const CommandResult refused = run_coda(resume);
  expect_our_line(refused, "say again which data");
  EXPECT_THAT(refused.err, HasSubstr("--data '" + secret + "'\\''; echo \\x1b[2J"));
  const CommandResult resumed = run_coda(resume + Words{"--data", data});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(ForeignFiles, ALinkIsNotFollowedOnWriting) {
  const std::string mine = folder.write("mine.txt", "mine");
  fs::create_directories(folder / "run/step-000002.tmp");
  fs::remove_all(folder / "run/step-000002.tmp");
  for (const char* name :
       {"loss_curve.svg", "latest", "latest.tmp", "step-000002", "step-000002.tmp"})
    fs::create_symlink(mine, folder / "run" + "/" + name);
  const CommandResult result =
      run_coda(Words{"train", "--out", folder / "run", "--data", data} + kTinyModel);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_bytes(mine), "mine");
  EXPECT_FALSE(fs::is_symlink(folder / "run/loss_curve.svg"));
  EXPECT_THAT(read_bytes(folder / "run/loss_curve.svg"), HasSubstr("<svg"));
}

// Sizes in config.json are compared with the weights before anything is made of them.
TEST_F(ForeignFiles, SizesThatTheWeightsDoNotHaveTakeNoMemory) {
  const std::string good = checkpoint();
  std::string config = read_bytes(good + "/config.json");
  const std::string vocabulary = "\"vocab_size\": 256";
  ASSERT_NE(config.find(vocabulary), std::string::npos);
  config.replace(config.find(vocabulary), vocabulary.size(), "\"vocab_size\": 16000000");
  folder.write("run/step-000002/config.json", config);
  const CommandOptions small{.memory_limit = kGigabyte};
  const Words ids{"--ids", folder.write("ids.bin", std::string(400, '\0'))};
  const std::string said = "has shape [256, 8], but the model needs [16000000, 8]";
  expect_our_line(run_coda(Words{"eval", good} + ids, small), said);
  expect_our_line(run_coda({"sample", good, "--prompt-ids", "1"}, small), said);
  expect_our_line(
      run_coda(Words{"train", "--init", good, "--out", folder / "new", "--sequence", "8"} + ids,
               small),
      said);
  expect_our_line(run_coda({"train", "--out", folder / "run", "--resume", "--data", data}, small),
                  said);
}

TEST_F(ForeignFiles, LayersThatTheWeightsDoNotHaveTakeNoTime) {
  const std::string good = checkpoint();
  std::string config = read_bytes(good + "/config.json");
  const std::string layers = "\"num_hidden_layers\": 1";
  ASSERT_NE(config.find(layers), std::string::npos);
  folder.write("run/step-000002/config.json",
               config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 10000"));
  expect_our_line(run_coda({"eval", good, "--data", data}), "config.json asks for 10000 layers");
}

TEST_F(ForeignFiles, MemoryThatCannotBeHadIsSaidWithItsAmount) {
  const CommandResult result = run_coda({"train", "--out", folder / "run", "--data", data,
                                         "--hidden", "8192", "--layers", "1", "--sequence", "8"},
                                        {.memory_limit = kGigabyte});
  expect_our_line(result, "not enough memory");
  EXPECT_THAT(result.err, testing::ContainsRegex("needs [0-9.]+ [MG]B"));
}

TEST_F(ForeignFiles, LongTextsAndEscapeCodesAreNotShown) {
  const std::string good = checkpoint();
  const std::string config = read_bytes(good + "/config.json");
  const std::string weights = read_bytes(good + "/model.safetensors");
  const std::string escapes = "\\u001b[2J\\u009b" + std::string(100000, 'x');
  const auto eval = [&](const std::string& from, const std::string& to, bool in_weights) {
    std::string changed = in_weights ? weights : config;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    if (in_weights) {
      const uint64_t length = changed.find("}}") + 2 - 8;
      changed.resize(length + 8);
      for (int i = 0; i < 8; ++i)
        changed[static_cast<size_t>(i)] = static_cast<char>(length >> 8 * i);
    }
    folder.write("bad/config.json", in_weights ? config : changed);
    folder.write("bad/model.safetensors", in_weights ? changed : weights);
    return run_coda({"eval", folder / "bad", "--data", data});
  };
  expect_our_line(eval("\"silu\"", "\"" + escapes + "\"", false), "hidden_act");
  expect_our_line(
      eval("\"vocab_size\"", "\"" + escapes + "\":1,\"" + escapes + "\":1,\"vocab_size\"", false),
      "appears twice");
  expect_our_line(eval("\"F32\"", "\"" + escapes + "\"", true), "unknown type");
}

TEST_F(ForeignFiles, NamesThatNoFileCanHave) {
  const std::string good = checkpoint();
  fs::create_symlink("loop", folder / "loop");
  const std::string bytes = folder / "\xff\x1b[2J";
  for (const std::string& name :
       {folder / std::string(300, 'n'), folder / "loop", folder / "loop/a", bytes}) {
    SCOPED_TRACE(name);
    for (const Words& words :
         {Words{"train", "--out", folder / "new", "--data", name},
          Words{"train", "--out", folder / "new", "--ids", name},
          Words{"train", "--out", folder / "new", "--data", data, "--init", name},
          Words{"train", "--out", folder / "new", "--data", data, "--config", name},
          Words{"train", "--out", name, "--resume", "--data", data},
          Words{"eval", name, "--data", data}, Words{"eval", good, "--data", name},
          Words{"sample", name}, Words{"check", name}, Words{"emit", name}, Words{"explain", name},
          Words{"bench", "program", name}, Words{"compile", name}}) {
      SCOPED_TRACE(words[0] + " " + words[1]);
      expect_our_line(run_coda(words), "");
    }
    if (name == bytes) continue;
    expect_our_line(run_coda({"train", "--out", name, "--data", data}), "");
  }
  EXPECT_FALSE(fs::exists(folder / "new"));
}

// A name that is no UTF-8 is a name.
TEST_F(ForeignFiles, NamesThatAreNoUtf8Work) {
  const std::string text = folder.write("\xff.txt", read_bytes(data));
  const std::string out = folder / "run\xfe";
  EXPECT_EQ(run_coda(Words{"train", "--out", out, "--data", text} + kTinyModel).status, 0);
  const CommandResult resumed =
      run_coda({"train", "--out", out, "--data", text, "--resume", "--sample", "0"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(run_coda({"eval", out, "--data", text}).status, 0);
}

TEST_F(ForeignFiles, AFolderThatCannotBeReadIsNamed) {
  // Root reads every folder, unless the command starts without that right.
  for (const unsigned long right : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}) {
    if (::geteuid() == 0 && prctl(PR_CAPBSET_DROP, right) != 0) GTEST_SKIP() << "no CAP_SETPCAP";
  }
  fs::create_directories(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::none);
  for (const Words& words : {Words{"train", "--out", folder / "new", "--data", folder / "closed"},
                             Words{"eval", folder / "closed", "--data", data}}) {
    expect_our_line(run_coda(words), folder / "closed");
  }
  fs::permissions(folder / "closed", fs::perms::owner_all);
}

// libxsmm keeps /tmp/.libxsmm.<user> open, a name that anybody may have made a link.
TEST_F(ForeignFiles, NoFileWithANameThatAnybodyCanGuessIsOpened) {
  std::string names;
  run_coda(Words{"train", "--out", folder / "run", "--data", data} + kTinyModel +
               Words{"--steps", "100000"},
           {.while_running = [&](pid_t child) {
             EXPECT_TRUE(wait_for_file(child, folder / "run/latest"));
             std::error_code error;
             for (const auto& entry :
                  fs::directory_iterator("/proc/" + std::to_string(child) + "/fd", error))
               names += fs::read_symlink(entry, error).string() + "\n";
             kill(child, SIGKILL);
           }});
  EXPECT_THAT(names, HasSubstr("run\n")) << "the run's own folder is locked";
  EXPECT_THAT(names, Not(HasSubstr("xsmm")));
}

// Its gradient would be a sum of as many slices.
TEST_F(ForeignFiles, ALargeRepeatInAProgramTakesNoMemory) {
  const std::string file =
      folder.write("p.coda", "program p {\n  store(o, tile(c[M, 1], repeat=10000000))\n}\n");
  for (const char* command : {"check", "explain", "emit"}) {
    const CommandResult result =
        run_coda({command, file, "--sizes", "M=2"}, {.memory_limit = kGigabyte});
    EXPECT_EQ(result.status, 1) << command;
    EXPECT_THAT(result.err, HasSubstr("p.coda:2:12: error: columns repeated 10000000 times, "
                                      "where 1 to 1024 are supported\n"));
  }
}

}  // namespace
}  // namespace coda
