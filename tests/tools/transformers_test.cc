// SPDX-License-Identifier: Apache-2.0
// A checkpoint that `coda train` wrote is one that transformers loads, with the loss that `coda
// eval` says.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "parity/python_modules.h"
#include "tokenizer/small_tokenizer.h"
#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

// The number behind `key` in a command's output.
double number_after(const std::string& text, const std::string& key) {
  const size_t place = text.find(key);
  return place == std::string::npos ? -1 : std::atof(text.c_str() + place + key.size());
}

TEST(Transformers, LoadsOurCheckpointsAndFindsOurLoss) {
  const auto python = python_with("torch transformers", CODA_SOURCE_DIR);
  if (!python) GTEST_SKIP() << kNoJudges;
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i % 977) + "\n";
  const std::string data = folder.write("text.txt", text);
  constexpr int kIds = 40;
  std::string words;
  std::string bytes;
  for (int i = 0; i < kIds; ++i) {
    words += std::to_string(static_cast<int>(text[i])) + " ";
    bytes += std::string{text[i], '\0'};
  }
  const std::string words_file = folder.write("ids.txt", words + "\n");
  const std::string ids_file = folder.write("ids.bin", bytes);

  // RoPE as LLaMA 3.1 stretches it, from a config.json.
  folder.write("llama3/config.json", R"({"architectures": ["LlamaForCausalLM"],
      "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 256,
      "num_attention_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false,
      "rope_theta": 100.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})");
  // The other architectures, each with what sets it apart, from a config.json.
  const std::vector<std::pair<std::string, std::string>> others{
      {"qwen2", R"("use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1)"},
      {"qwen3", R"("head_dim": 6, "rope_theta": 100.0, "rope_scaling": {"rope_type": "yarn",
          "factor": 2.0, "original_max_position_embeddings": 32})"},
      {"mistral", R"("sliding_window": 7)"},
      {"olmo2", R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})"},
      {"phi3", R"("sliding_window": 9, "original_max_position_embeddings": 32, "rope_scaling": {
          "type": "longrope", "short_factor": [1, 1, 2, 3], "long_factor": [1, 2, 4, 8]})"},
      {"smollm3", R"("no_rope_layer_interval": 2, "attention_bias": true, "mlp_bias": true)"},
      {"gemma2", R"("head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 7)"},
      {"gemma3_text", R"("head_dim": 6, "query_pre_attn_scalar": 5, "sliding_window": 7,
          "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 2.0})"},
      {"mixtral", R"("num_local_experts": 4, "num_experts_per_tok": 2)"},
      {"olmoe", R"("num_experts": 3, "num_experts_per_tok": 2)"},
      {"qwen3_moe", R"("head_dim": 6, "num_experts": 4, "num_experts_per_tok": 3,
          "moe_intermediate_size": 12, "norm_topk_prob": true, "mlp_only_layers": [0])"},
      {"gpt_neox", R"("rotary_pct": 0.5, "rotary_emb_base": 100)"}};
  for (const auto& [type, settings] : others) {
    folder.write(type + "/config.json",
                 R"({"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "vocab_size": 256, "num_attention_heads": 2, "max_position_embeddings": 64,
        "model_type": ")" +
                     type + (type == "gpt_neox" ? "\", " : "\", \"num_key_value_heads\": 1, ") +
                     settings + "}");
  }
  const std::vector<std::string> sizes{"--layers", "2", "--hidden", "16", "--heads", "4"};
  std::vector<std::vector<std::string>> models{
      {"--model", "llama", "--kv-heads", "2", "--untied", "--dtype", "bf16"},
      {"--model", "llama", "--kv-heads", "1", "--head-size", "6"},  // tied
      {"--model", "gpt2"}};
  for (auto& model : models) model.insert(model.end(), sizes.begin(), sizes.end());
  models.push_back({"--config", folder / "llama3"});
  for (const auto& [type, settings] : others) models.push_back({"--config", folder / type});
  // Trained with sparse experts, and evaluated with dense ones, as transformers has them.
  models.push_back({"--config", folder / "mixtral", "--expert-capacity", "1.25"});
  // Text through a tokenizer, which stays with the checkpoint.
  const std::string short_text = folder.write("short.txt", "line 1é\nline 22");
  models.push_back({"--tokenizer", folder.write("tokenizer.json", small_tokenizer())});
  models.back().insert(models.back().end(), sizes.begin(), sizes.end());
  std::string checkpoints;
  std::vector<double> ours;
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string run = folder / ("run" + std::to_string(i));
    std::vector<std::string> command{"train", "--data", data, "--out", run};
    for (const char* word :
         {"--sequence", "48", "--batch", "2", "--steps", "20", "--lr", "1e-2", "--sample", "0"}) {
      command.emplace_back(word);
    }
    command.insert(command.end(), models[i].begin(), models[i].end());
    SCOPED_TRACE("model " + std::to_string(i) + ": " + models[i][1]);
    const CommandResult trained = run_coda(command);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const CommandResult eval = i + 1 < models.size()
                                   ? run_coda({"eval", run, "--ids", ids_file, "--sequence",
                                               std::to_string(kIds), "--json"})
                                   : run_coda({"eval", run, "--data", short_text, "--json"});
    ASSERT_EQ(eval.status, 0) << eval.err;
    checkpoints += run + "/latest ";
    ours.push_back(number_after(eval.out, "\"loss\":"));
  }

  // All in one run: importing transformers takes longer than all the rest.
  const std::string script = std::string(CODA_SOURCE_DIR) + "/tests/parity/hf_load.py ";
  const std::string log = folder / "log";
  const std::string load =
      *python + " " + script + checkpoints + words_file + " > " + log + " 2>&1";
  ASSERT_EQ(std::system(load.c_str()), 0) << read_bytes(log);
  const std::string said = read_bytes(log);
  size_t place = 0;
  for (size_t i = 0; i < models.size(); ++i) {
    place = said.find("loss ", place);
    ASSERT_NE(place, std::string::npos) << said;
    const double theirs = number_after(said.substr(place++), "loss ");
    EXPECT_NEAR(ours[i], theirs, 1e-4 * theirs) << "model " << i << ": " << models[i][1];
  }
}

}  // namespace
}  // namespace coda
