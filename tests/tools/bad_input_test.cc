// SPDX-License-Identifier: Apache-2.0
// Bad input gives one line on stderr that says what is wrong, an exit status that is not 0, and
// leaves nothing half written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tools/expect_one_line.h"
#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string some_text(size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) {
    text += "line " + std::to_string(i * i) + " of a text that nobody reads\n";
  }
  return text.substr(0, bytes);
}

// A model that trains in no time.
const Words kTiny{"--layers", "1", "--hidden",   "8", "--heads",  "2", "--mlp",      "8",
                  "--batch",  "2", "--sequence", "8", "--sample", "0", "--held-out", "0"};

class BadInput : public testing::Test {
 protected:
  std::string text() const { return folder.write("text.txt", some_text(2000)); }
  std::string out() const { return folder / "run"; }
  CommandResult train(const Words& flags) const {
    return run_coda(Words{"train", "--out", out()} + kTiny + flags);
  }
  // A trained checkpoint.
  std::string checkpoint() const {
    const CommandResult result = train({"--data", text(), "--steps", "2"});
    EXPECT_EQ(result.status, 0) << result.err;
    return folder / "run/step-000002";
  }
  // Fails before anything is written.
  void expect_train_refuses(const Words& flags, int status, const Words& said) const {
    expect_one_line(train(flags), status, said);
    EXPECT_EQ(names_in(out()), Words{});
  }

  TestFolder folder;
};

TEST_F(BadInput, WrongFlags) {
  expect_one_line(run_coda({}), 2, {"--help"});
  expect_one_line(run_coda({"trian"}), 2, {"there is no command 'trian'", "--help"});
  expect_train_refuses({"--data", text(), "--stepz", "3"}, 2, {"--stepz", "coda train --help"});
  expect_train_refuses({"--data", text(), "--steps", "many"}, 2, {"--steps"});
  expect_train_refuses({"--data", text(), "--steps", "0"}, 2, {"--steps"});
  expect_train_refuses({"--data", text(), "--dtype", "fp16"}, 2, {"--dtype"});
  expect_train_refuses({"--data", text(), "--model", "bert"}, 2, {"--model"});
  expect_train_refuses({"--data", text(), "--warmup", "9", "--steps", "3"}, 1, {"warm"});
  expect_train_refuses({"--data", text(), "--seed", "-1"}, 2, {"--seed", "'-1'"});
  expect_train_refuses({"--data", text(), "--seed", "18446744073709551616"}, 2, {"2^64 - 1"});
  expect_train_refuses({"--data", text(), "--beta2", "1"}, 1, {"beta2", "below 1"});
  expect_train_refuses({"--data", text(), "--master-weights", "bf16"}, 1, {"add --dtype bf16"});
  expect_train_refuses({"--data", text(), "--moments-on-host", "--device", "cpu"}, 1,
                       {"on a CPU, whose memory has the moments anyway"});
  expect_train_refuses({"--data", text(), "--layers-on-host", "--device", "cpu"}, 1,
                       {"on a CPU, whose memory has the inputs of layers anyway"});
  expect_train_refuses({"--data", ""}, 1, {"--data"});
  expect_one_line(run_coda({"train", "--out", "", "--data", text()}), 1, {"--out is empty"});
}

TEST_F(BadInput, NumbersThatAreNone) {
  for (const char* flag : {"--lr", "--final-lr", "--decay", "--beta1", "--beta2", "--adam-eps",
                           "--clip", "--held-out"}) {
    for (const char* value : {"nan", "-1", "inf", "1e-3x", ""}) {
      expect_train_refuses({"--data", text(), flag, value}, 2, {flag});
    }
  }
  for (const char* flag : {"--steps", "--batch", "--hidden", "--layers", "--vocab", "--warmup",
                           "--loss-rows", "--mlp"}) {
    for (const char* value : {"abc", "", "1e3", "0x10", "4.0", "nan"}) {
      expect_train_refuses({"--data", text(), flag, value}, 2, {flag, "whole number"});
    }
  }
  for (const char* flag : {"--eps", "--rope-theta"}) {
    for (const char* value : {"nan", "0", "inf"}) {
      expect_train_refuses({"--data", text(), flag, value}, 1, {"positive number"});
    }
  }
}

TEST_F(BadInput, NumbersAreDecimal) {
  const CommandResult result = train({"--data", text(), "--steps", "010", "--seed", "0017"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(fs::exists(folder / "run/step-000010"));
  EXPECT_THAT(read_bytes(folder / "run/step-000010/run_state.json"), HasSubstr("\"seed\":17"));
}

TEST_F(BadInput, FlagsThatContradictOneAnother) {
  const std::string good = checkpoint();
  const auto start = [&](const Words& flags) {
    return run_coda(Words{"train", "--out", folder / "new", "--data", text(), "--steps", "1",
                          "--sequence", "8"} +
                    flags);
  };
  expect_one_line(start({"--init", good, "--hidden", "16"}), 1, {"--init", "--hidden"});
  expect_one_line(start({"--init", good, "--config", good}), 1, {"--init", "--config"});
  expect_one_line(start({"--config", good, "--hidden", "16"}), 2, {"--config", "--hidden"});
  expect_one_line(start({"--model", "gpt2", "--kv-heads", "2"}), 1, {"gpt2", "--kv-heads"});
  expect_one_line(start({"--model", "gpt2", "--rope-theta", "5"}), 1, {"gpt2", "--rope-theta"});
  EXPECT_EQ(names_in(folder / "new"), Words{});
}

TEST_F(BadInput, MissingOrEmptyData) {
  expect_train_refuses({}, 1, {"--data", "--ids"});
  expect_train_refuses({"--data", folder / "none.txt"}, 1, {"none.txt"});
  expect_train_refuses({"--ids", folder / "none.bin"}, 1, {"none.bin"});
  expect_train_refuses({"--data", folder.write("empty.txt", "")}, 1, {"empty.txt"});
  folder.write("nothing/binary", std::string(100, '\0'));
  expect_train_refuses({"--data", folder / "nothing"}, 1, {"nothing", "no text"});
  expect_train_refuses({"--data", text(), "--ids", text()}, 1, {"--data", "--ids"});
  expect_one_line(run_coda({"eval", checkpoint()}), 1, {"--data"});
}

// A full disk or an interrupted copy leaves empty files.
TEST_F(BadInput, FilesOfNoBytes) {
  const auto expect_said = [&](const Words& command, const std::string& file) {
    expect_one_line(run_coda(command), 1, {file + ": the file is empty"});
  };
  const auto write_model = [&](const std::string& config) {
    folder.write("model/config.json", config);
    folder.write("model/model.safetensors", "");
    folder.write("model/tokenizer.json", "");
  };
  const Words eval{"eval", folder / "model", "--data", text()};
  write_model("");
  expect_said(eval, folder / "model/config.json");
  write_model(
      R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "vocab_size": 256,
                  "num_hidden_layers": 1, "num_attention_heads": 2})");
  expect_said(eval, folder / "model/model.safetensors");
  expect_said(Words{"train", "--out", out(), "--data", text(), "--tokenizer", folder / "model"},
              folder / "model/tokenizer.json");
  const std::string program = folder.write("p.coda", "program p { store(y, tile(x[M, N])) }\n");
  for (const char* arrays : {"empty.npz", "empty.safetensors"}) {
    const std::string in = folder.write(arrays, "");
    expect_said({"run", program, "--in", in, "--out", folder / "results.npz"}, in);
  }
  const std::string none = folder.write("empty.coda", "");
  for (const char* command : {"check", "explain", "fmt", "derive", "emit"})
    expect_said({command, none}, none);
}

TEST_F(BadInput, DataThatIsNoText) {
  const std::pair<std::string, const char*> files[] = {
      {"\x1f\x8b\b", "gzip"},
      {"PAR1", "Parquet"},
      {"\x89PNG\r\n", "image (PNG)"},
      {std::string("PK\3\4"), "zip"},
      {std::string("\x08\0\0\0\0\0\0\0{\"a\": 1}", 16), "checkpoint (safetensors)"},
      {"\xff\xfe" + std::string("a\0b\0", 4), "UTF-16"},
      {std::string("\5\0\6\0", 4), "a byte of 0 at 1 (give UTF-8 text, or token ids with --ids)"}};
  for (const auto& [start, kind] : files) {
    const std::string file = folder.write("data", start + std::string(5000, 'x'));
    expect_train_refuses({"--data", file}, 1, {"data: the file is no text", kind});
  }
}

TEST_F(BadInput, FlagsGivenTwice) {
  expect_train_refuses({"--data", text(), "--data", text()}, 2, {"--data"});
  const CommandResult result =
      run_coda({"eval", checkpoint(), "--data", text(), "--limit", "5", "--limit", "7"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, testing::HasSubstr("--limit is given 2 times; the last counts: 7"));
  EXPECT_THAT(run_coda({"train", "--data", folder / "none", "--tied", "--untied"}).err,
              testing::HasSubstr("--tied is given 2 times; the last counts: false"));
}

TEST_F(BadInput, ATextShorterThanASequence) {
  const std::string words = folder.write("short.txt", "12345678");
  expect_train_refuses({"--data", words}, 1, {"short.txt", "8 tokens", "9"});
}

TEST_F(BadInput, InconsistentSizes) {
  const std::string data = text();
  expect_train_refuses({"--data", data, "--heads", "3"}, 1, {"--heads 3", "--hidden 8"});
  expect_train_refuses({"--data", data, "--heads", "4", "--kv-heads", "3"}, 1,
                       {"--kv-heads (3)", "--heads (4)"});
  expect_train_refuses({"--data", data, "--head-size", "3"}, 1,
                       {"--head-size is 3", "even", "--hidden or --heads"});
  expect_train_refuses({"--data", data, "--layers", "-1"}, 1, {"--layers is -1"});
  expect_train_refuses({"--data", data, "--max-positions", "4"}, 1, {"--sequence", "8", "4"});
}

// A step that takes more than there is; 5 MB stand for what is free. No folder is made.
TEST_F(BadInput, AStepThatDoesNotFitIntoMemory) {
  const Words flags{"--batch", "16",       "--sequence", "64",       "--hidden",
                    "64",      "--layers", "2",          "--memory", "0.005"};
  expect_train_refuses(
      Words{"--data", text()} + flags, 1,
      {"a step of 16 sequences of 64 tokens takes", "weights", "optimizer's state",
       "saved for the backward", "5.0 MB are free", "what fits: --batch ", "--accumulate"});
}

TEST_F(BadInput, SizesBeyondWhatCanBeCounted) {
  const std::string data = text();
  expect_train_refuses({"--data", data, "--batch", "2000000000"}, 1, {"2^31", "--batch"});
  expect_train_refuses({"--data", data, "--hidden", "2000000000"}, 1, {"2^40"});
  expect_train_refuses({"--data", data, "--vocab", "3000000000"}, 1, {"2147483647"});
  expect_train_refuses({"--data", data, "--layers", "2000000000"}, 1, {"from 1 to 10000"});
  // Not refused by the size of any tensor, but by that of all: 13 TB.
  expect_train_refuses({"--data", data, "--layers", "10000", "--hidden", "2048", "--mlp", "8192"},
                       1, {"weights", "GB", "make the model smaller"});
  const std::string program = std::string(CODA_SOURCE_DIR) + "/programs/residual_norm";
  expect_one_line(run_coda({"explain", program + ".coda", "--sizes", "M=4294967296,N=64,K=64"}), 2,
                  {"M=4294967296", "2147483647"});
  EXPECT_EQ(
      run_coda({"explain", program + ".coda", "--sizes", "M=2147483647,N=2147483647,K=2147483647"})
          .status,
      0);
}

TEST_F(BadInput, AVocabularyTooSmallForTheData) {
  std::string ids;
  for (int i = 0; i < 100; ++i) ids += std::string{static_cast<char>(i), '\1'};  // 256 + i
  const std::string file = folder.write("ids.bin", ids);
  expect_train_refuses({"--ids", file, "--vocab", "300"}, 1, {"ids.bin", "token 44", "id 300"});
  expect_train_refuses({"--data", text(), "--vocab", "100"}, 1, {"256", "100", "--ids"});
  const std::string cut = folder.write("cut.bin", "abc");
  expect_train_refuses({"--ids", cut}, 1, {"cut.bin", "3 bytes"});
}

// Whose tokens are no bytes: its losses on bytes would mean nothing, and training would undo it.
TEST_F(BadInput, ATextForAModelThatWasTrainedOnOtherTokens) {
  const CommandResult trained = train({"--data", text(), "--steps", "1", "--vocab", "300"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string model = folder / "run/step-000001";
  const Words refusal{"256", "300", "--ids made with the model's tokenizer"};
  expect_one_line(run_coda({"eval", model, "--data", text()}), 1, refusal);
  expect_one_line(run_coda({"train", "--out", folder / "other", "--init", model, "--data", text()}),
                  1, refusal);
  EXPECT_EQ(names_in(folder / "other"), Words{});
}

TEST_F(BadInput, DamagedCheckpoints) {
  const std::string good = checkpoint();
  const std::string data = folder / "text.txt";
  const std::string config = read_bytes(fs::path(good) / "config.json");
  const std::string weights = read_bytes(fs::path(good) / "model.safetensors");
  auto eval = [&](const std::string& changed_config, const std::string& changed_weights) {
    folder.write("bad/config.json", changed_config);
    folder.write("bad/model.safetensors", changed_weights);
    return run_coda({"eval", folder / "bad", "--data", data});
  };
  auto replaced = [](std::string text, const std::string& what, const std::string& by) {
    EXPECT_NE(text.find(what), std::string::npos) << what;
    return text.replace(text.find(what), what.size(), by);
  };
  EXPECT_EQ(eval(config, weights).status, 0);
  expect_one_line(run_coda({"eval", folder / "none", "--data", data}), 1, {"none"});
  expect_one_line(eval(config.substr(0, config.size() / 2), weights), 1, {"config.json"});
  expect_one_line(eval("", weights), 1, {"config.json"});
  expect_one_line(eval(replaced(config, "\"silu\"", "\"relu\""), weights), 1,
                  {"config.json", "hidden_act", "relu"});
  expect_one_line(
      eval(replaced(config, "\"intermediate_size\": 8", "\"intermediate_size\": 9"), weights), 1,
      {"model.safetensors", "[8, 8]", "[9, 8]"});
  expect_one_line(
      eval(replaced(config, "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2"), weights), 1,
      {"model.layers.1."});
  expect_one_line(eval(config, ""), 1, {"model.safetensors"});
  expect_one_line(eval(config, weights.substr(0, weights.size() - 1)), 1, {"model.safetensors"});
  expect_one_line(eval(config, "\xff\xff\xff\xff" + weights.substr(4)), 1, {"model.safetensors"});
  expect_one_line(eval(config, replaced(weights, "\"F32\"", "\"I32\"")), 1, {"I32"});
}

TEST_F(BadInput, AFullDiskKeepsTheLastCheckpoint) {
  const std::string good = checkpoint();
  const std::string before = read_bytes(fs::path(good) / "model.safetensors");
  const std::vector<std::string> names = names_in(out());
  // The same run longer, from the checkpoint, on a disk on which no file can grow to its size.
  const CommandResult result =
      run_coda(Words{"train", "--out", folder / "new", "--init", good, "--data",
                     folder / "text.txt", "--steps", "2", "--sample", "0", "--sequence", "8"},
               {.file_limit = 2000});
  expect_one_line(result, 1, {folder / "new", "File too large"});
  EXPECT_EQ(names_in(folder / "new"), Words{});
  EXPECT_EQ(names_in(out()), names);
  EXPECT_EQ(read_bytes(fs::path(good) / "model.safetensors"), before);
}

// The disk fills up while a run is under way: after its first checkpoints no file can be written.
TEST_F(BadInput, ADiskThatFillsUpStopsTheRunAndKeepsTheLastCheckpoint) {
  const CommandResult result =
      run_coda(Words{"train", "--out", out()} + kTiny +
                   Words{"--data", text(), "--steps", "1000000", "--save-every", "1"},
               {.file_limit = int64_t{1} << 40, .while_running = [this](pid_t child) {
                  EXPECT_TRUE(wait_for_file(child, folder / "run/step-000002"));
                  const rlimit limit{1000, 1000};
                  prlimit(child, RLIMIT_FSIZE, &limit, nullptr);
                }});
  expect_one_line(result, 1, {"run/step-", "File too large", "the last good checkpoint is"});
  const size_t at = result.err.rfind(folder / "run/step-");
  ASSERT_NE(at, std::string::npos);
  const std::string last = result.err.substr(at, result.err.find('\n', at) - at);
  for (const std::string& name : names_in(out())) EXPECT_EQ(name.find(".tmp"), std::string::npos);
  const CommandResult eval = run_coda({"eval", last, "--data", folder / "text.txt"});
  EXPECT_EQ(eval.status, 0) << eval.err;
  const auto latest = [&] { return fs::read_symlink(folder / "run/latest"); };
  const fs::path before = latest();
  const CommandResult resumed = run_coda(
      {"train", "--out", out(), "--data", folder / "text.txt", "--resume", "--save-every", "1"},
      {.while_running = [&](pid_t child) {
        EXPECT_TRUE(wait_until(child, [&] { return latest() != before; }));
        kill(child, SIGINT);
      }});
  EXPECT_EQ(resumed.status, 130) << resumed.err;
}

TEST_F(BadInput, TwoRunsInOneFolder) {
  const std::string data = text();
  CommandResult second;
  CommandResult resumed;
  run_coda(Words{"train", "--out", out()} + kTiny + Words{"--data", data, "--steps", "1000000"},
           {.while_running = [&](pid_t child) {
             EXPECT_TRUE(wait_for_file(child, folder / "run/latest"));
             second = train({"--data", data, "--steps", "2", "--overwrite"});
             resumed = run_coda({"train", "--out", out(), "--data", data, "--resume"});
             kill(child, SIGKILL);
           }});
  expect_one_line(second, 1, {folder / "run", "another coda train", "--out"});
  expect_one_line(resumed, 1, {folder / "run", "another coda train"});
  EXPECT_EQ(train({"--data", data, "--steps", "2", "--overwrite"}).status, 0);
}

// Whether weights overflow at once or it takes a few steps until the loss does, or an update makes
// weights of 0 / 0: what is kept gives a finite loss.
TEST_F(BadInput, ALossThatIsNotFiniteStopsAndKeepsTheLastGoodCheckpoint) {
  const std::string data = text();
  const std::vector<Words> runs{{"--lr", "1e6", "--decay", "1e6", "--clip", "0"},
                                {"--lr", "1e4", "--decay", "3e-2", "--clip", "0"},
                                {"--untied", "--adam-eps", "0"}};
  for (const Words& flags : runs) {
    const CommandResult result =
        train(Words{"--data", data, "--steps", "2000", "--save-every", "1", "--overwrite"} + flags);
    expect_one_line(result, 1, {"step ", "not finite", "the last good checkpoint is "});
    for (const std::string& name : names_in(out())) {
      EXPECT_EQ(name.find(".tmp"), std::string::npos);
    }
    const size_t at = result.err.rfind(folder / "run/step-");
    ASSERT_NE(at, std::string::npos) << result.err;
    const std::string last = result.err.substr(at, result.err.find('\n', at) - at);
    const CommandResult eval = run_coda({"eval", last, "--data", data});
    EXPECT_EQ(eval.status, 0) << eval.err;
  }
}

// A damaged checkpoint to start from; the run that is there stays.
TEST_F(BadInput, WeightsThatGiveNoFiniteLossStartNoRun) {
  const std::string good = checkpoint();
  const std::string config = read_bytes(fs::path(good) / "config.json");
  std::string weights = read_bytes(fs::path(good) / "model.safetensors");
  weights.replace(weights.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));  // NaN
  folder.write("bad/config.json", config);
  folder.write("bad/model.safetensors", weights);
  const std::vector<std::string> names = names_in(out());
  const CommandResult result =
      run_coda({"train", "--out", out(), "--overwrite", "--init", folder / "bad", "--data",
                folder / "text.txt", "--steps", "2", "--sequence", "8"});
  expect_one_line(result, 1, {"after step 0", "not finite", good});
  EXPECT_EQ(names_in(out()), names);
  EXPECT_EQ(read_bytes(fs::path(good) / "config.json"), config);
}

TEST_F(BadInput, ARunIsNeitherOverwrittenNorResumedByMistake) {
  const std::string good = checkpoint();
  const std::string data = folder / "text.txt";
  const std::string before = read_bytes(fs::path(good) / "model.safetensors");
  expect_one_line(train({"--data", data, "--steps", "2"}), 1, {"--resume", "--overwrite"});
  expect_one_line(run_coda({"train", "--out", out(), "--resume", "--lr", "1"}), 1, {"--lr"});
  expect_one_line(run_coda({"train", "--out", folder / "new", "--resume"}), 1, {"no checkpoint"});
  expect_one_line(run_coda({"train", "--out", out(), "--resume"}), 1,
                  {"say again which data", "--data '" + data + "'"});
  folder.write("text.txt", some_text(1999));
  expect_one_line(run_coda({"train", "--out", out(), "--data", data, "--resume"}), 1,
                  {"data has changed"});
  EXPECT_EQ(read_bytes(fs::path(good) / "model.safetensors"), before);
}

TEST_F(BadInput, PromptsThatTheModelCannotRead) {
  const std::string good = checkpoint();
  expect_one_line(run_coda({"sample", good, "--prompt-ids", "1,256"}), 1, {"256"});
  expect_one_line(run_coda({"sample", good, "--temperature", "-1"}), 2, {"--temperature"});
}

}  // namespace
}  // namespace coda
