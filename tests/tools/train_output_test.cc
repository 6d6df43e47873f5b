// SPDX-License-Identifier: Apache-2.0
// What a person sees of a training run, and of a sample: how far it is, the loss curve, a text,
// held-out bits a byte beside xz's, the fused plan beside the unfused one; in the terminal and as
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
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
  // The first step's line: loss, tokens a second, memory, time left; no share of a peak on a CPU.
  EXPECT_TRUE(std::regex_search(out, std::regex("step +1/30  loss [0-9.]+  [0-9.]+[kM]? tokens/s  "
                                                "[0-9]+\\.[0-9]{2} GB  [0-9: ]+s? ?left")))
      << out;
  EXPECT_THAT(out, testing::Not(HasSubstr("of the peak")));
  // What a step takes stands first, and its parts are its sum (to the digits that are printed).
  EXPECT_THAT(out, StartsWith("memory of a step: "));
  const std::string memory = out.substr(0, out.find('\n'));
  double sum = 0;
  for (const char* part : {"weights", "optimizer's state", "saved for the backward", "temporaries",
                           "workspace of kernels", "batch and tables", "losses of held-out text"})
    sum += number(memory, part + std::string(" ([0-9]+) bytes"));
  EXPECT_EQ(sum, number(memory, "memory of a step: ([0-9]+) bytes"));
  // The last line says that nothing is left.
  EXPECT_TRUE(std::regex_search(out, std::regex("step 30/30  loss [^\n]*  0 s left"))) << out;
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

// What Hugging Face keeps beside the weights stays with them: a tuned model has its tokenizer, its
// special tokens and its rates of dropout, which are for training elsewhere.
TEST_F(TrainOutput, ATunedModelKeepsTheFilesOfTheOneItStartedFrom) {
  ASSERT_EQ(train({"--sample", "0", "--steps", "1"}).status, 0);
  const fs::path model = folder / "model";
  fs::copy(fs::path(run()) / "step-000001", model);
  auto config = nlohmann::ordered_json::parse(read_bytes(model / "config.json"));
  config["bos_token_id"] = 1;
  config["eos_token_id"] = {2, 7};
  config["attention_dropout"] = 0.1;
  std::ofstream(model / "config.json") << config.dump();
  std::string vocabulary;  // the bytes once more
  for (int byte = 0; byte < 256; ++byte) {
    char token[32];
    std::snprintf(token, sizeof token, "%s\"<0x%02X>\": %d", byte > 0 ? ", " : "", byte, byte);
    vocabulary += token;
  }
  const std::string tokenizer = R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {)" +
                                vocabulary + R"(}, "merges": []}})";
  std::ofstream(model / "tokenizer.json") << tokenizer;
  const std::string chat = std::string("{# a template #}") + '\0' + "\xff";
  std::ofstream(model / "chat_template.jinja") << chat;
  std::ofstream(model / "generation_config.json") << "{}";
  std::ofstream(model / "somebodys_notes.txt") << "private";
  const Words tune{
      "train",      "--data", folder / "text.txt", "--out", folder / "tuned", "--init", model,
      "--sequence", "16",     "--sample",          "0",     "--steps",        "2",      "--dtype",
      "bf16"};
  ASSERT_EQ(run_coda(tune).status, 0);
  for (const char* step : {"step-000000", "step-000002"}) {
    const fs::path tuned = fs::path(folder / "tuned") / step;
    EXPECT_EQ(read_bytes(tuned / "tokenizer.json"), tokenizer);
    EXPECT_EQ(read_bytes(tuned / "chat_template.jinja"), chat);
    EXPECT_EQ(read_bytes(tuned / "generation_config.json"), "{}");
    EXPECT_FALSE(fs::exists(tuned / "somebodys_notes.txt"));
    auto kept = nlohmann::ordered_json::parse(read_bytes(tuned / "config.json"));
    EXPECT_EQ(kept["torch_dtype"], "bfloat16");
    kept["torch_dtype"] = config["torch_dtype"];
    EXPECT_EQ(kept, config);
  }
  // A run that goes on has them of its checkpoint.
  fs::remove_all(fs::path(folder / "tuned") / "step-000002");
  fs::remove_all(model);
  ASSERT_EQ(run_coda({"train", "--data", folder / "text.txt", "--out", folder / "tuned", "--resume",
                      "--sample", "0"})
                .status,
            0);
  const fs::path resumed = fs::path(folder / "tuned") / "step-000002";
  EXPECT_EQ(read_bytes(resumed / "tokenizer.json"), tokenizer);
  EXPECT_EQ(nlohmann::ordered_json::parse(read_bytes(resumed / "config.json"))["eos_token_id"],
            config["eos_token_id"]);
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

// The trace of a step: it parses, the compute track has the steps of the plan that `coda explain`
// shows for the same sizes, and nothing on a track overlaps.
TEST_F(TrainOutput, AProfileIsATraceOfThePlansPrograms) {
  const std::string file = folder / "trace.json";
  const CommandResult result = train({"--sample", "0", "--steps", "7", "--profile", file});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 5: what it did when is in "));
  const nlohmann::json trace = nlohmann::json::parse(read_bytes(file));
  std::map<int, double> ends;  // by track
  std::map<std::string, int> names;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    double& end = ends[event["tid"]];
    EXPECT_GE(event["ts"].get<double>(), end - 1e-3) << event["name"];
    end = event["ts"].get<double>() + event["dur"].get<double>();
    if (event["tid"] == 0) ++names[event["name"]];
  }
  const CommandResult explained =
      run_coda({"explain", "--layers", "1", "--hidden", "16", "--heads", "2", "--mlp", "24",
                "--batch", "2", "--sequence", "16", "--json"});
  const nlohmann::json plan = nlohmann::json::parse(explained.out)["fused"];
  for (const nlohmann::json& step : plan["steps"])
    EXPECT_EQ(names[step["name"]], 1) << step["name"];
  EXPECT_EQ(names.size(), plan["steps"].size() + 2);  // the norm and AdamW
  EXPECT_EQ(names["adamw"], 1);
  EXPECT_EQ(names["gradient_norm"], 1);

  const CommandResult nowhere = train({"--overwrite", "--profile", folder / "none/trace.json"});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("there is no folder"));
}

// --config takes what --init, eval and sample take: a model's folder, or that of a run.
TEST_F(TrainOutput, SizesComeFromARunOrACheckpoint) {
  const CommandResult first = train({"--sample", "0"});
  ASSERT_EQ(first.status, 0) << first.err;
  const auto model = [](const CommandResult& result) {
    const size_t at = result.out.find("LLaMA, ");
    EXPECT_NE(at, std::string::npos) << result.out;
    return result.out.substr(at, result.out.find('\n', at) - at);
  };
  for (const std::string& from : {run(), run() + "/latest"}) {
    const CommandResult other =
        run_coda({"train", "--config", from, "--data", folder / "text.txt", "--out", folder / "new",
                  "--overwrite", "--steps", "1", "--sequence", "16", "--sample", "0"});
    EXPECT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(model(other), model(first));
  }
}

// Choices of sparse experts that found no room are never dropped silently.
TEST_F(TrainOutput, SaysHowManyChoicesOfExpertsFoundNoRoom) {
  folder.write("mixtral/config.json",
               R"({"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 64, "num_local_experts": 4,
        "num_experts_per_tok": 2})");
  const std::string data = folder.write("text.txt", std::string(4000, 'a'));
  const auto start = [&](const std::string& capacity) {
    return run_coda({"train", "--config", folder / "mixtral", "--data", data, "--out", run(),
                     "--overwrite", "--batch", "8", "--sequence", "32", "--steps", "3", "--sample",
                     "0", "--expert-capacity", capacity});
  };
  // 2 layers of 256 tokens with 2 choices each; an expert has 64 rows, or all.
  CommandResult trained = start("0.1");
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, testing::ContainsRegex("step 3: experts had no room for [1-9][0-9]* of "
                                                  "1024 choices"));
  trained = start("2");
  EXPECT_THAT(trained.out, HasSubstr("step 3: experts had no room for 0 of 1024 choices (0.00 %)"));
  EXPECT_THAT(start("0").out, Not(HasSubstr("no room")));

  const auto evaluated = [&](const std::string& capacity) {
    const CommandResult result = run_coda({"eval", run(), "--data", data, "--sequence", "32",
                                           "--json", "--expert-capacity", capacity});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  EXPECT_GT(evaluated("0.1")["expert_choices_without_room"], 0);
  const nlohmann::json all = evaluated("2"), dense = evaluated("0");
  EXPECT_EQ(all["expert_choices_without_room"], 0);
  EXPECT_FALSE(dense.contains("expert_choices_without_room"));
  EXPECT_NEAR(all["loss"].get<double>(), dense["loss"].get<double>(), 1e-5);

  const CommandResult refused = train({"--overwrite", "--expert-capacity", "1.25"});
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("a capacity of experts is given, but the model has none"));
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
