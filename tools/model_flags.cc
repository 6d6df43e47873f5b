// SPDX-License-Identifier: Apache-2.0
// Translates flags to a config and names flags instead of config.json's keys in messages.
#include "model_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>
#include <utility>

#include "coda/checkpoint.h"
#include "coda/error.h"

namespace coda::tools {
namespace {

constexpr const char* kGroup = "Model";

// Replaces keys of a config.json in a message by flags.
std::string with_flags(std::string message) {
  static constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
      {"num_hidden_layers", "--layers"},
      {"num_attention_heads", "--heads"},
      {"num_key_value_heads", "--kv-heads"},
      {"hidden_size", "--hidden"},
      {"head_dim", "--head-size"},
      {"intermediate_size", "--mlp"},
      {"vocab_size", "--vocab"},
      {"max_position_embeddings", "--max-positions"},
      {"rms_norm_eps", "--eps"},
      {"rope_theta", "--rope-theta"},
      {"n_layer", "--layers"},
      {"n_embd", "--hidden"},
      {"n_head", "--heads"},
      {"n_inner", "--mlp"},
      {"n_positions", "--max-positions"},
      {"layer_norm_epsilon", "--eps"},
  };
  for (const auto& [key, flag] : kFlags) {
    for (size_t at = message.find(key); at != std::string::npos; at = message.find(key, at))
      message.replace(at, key.size(), flag);
  }
  return message;
}

}  // namespace

void say_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "coda: note: {}\n", note);
}

ModelFlags::ModelFlags() {
  sizes.layers = 4;
  sizes.hidden = 128;
  sizes.heads = 4;
  sizes.vocab = 256;
  sizes.tied = true;
}

void ModelFlags::add_to(CLI::App& command) {
  auto* from = command.add_option(
      "--config", config,
      "Sizes from the config.json of this folder, or of the newest checkpoint in it");
  from->type_name("FOLDER")->group(kGroup);
  auto option = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->excludes(from)->group(kGroup);
  };
  option("--model", model, "llama or gpt2")
      ->check(CLI::IsMember({"llama", "gpt2"}))
      ->capture_default_str();
  option("--layers", sizes.layers, "Layers")->capture_default_str();
  option("--hidden", sizes.hidden, "Width of the residual stream")->capture_default_str();
  option("--heads", sizes.heads, "Attention heads")->capture_default_str();
  option("--kv-heads", kv_heads, "Key-value heads [as many as heads]");
  option("--head-size", head_dim, "Columns of a head [hidden / heads]");
  option("--mlp", mlp, "Width of the MLP [8/3 of hidden to a multiple of 32; gpt2: 4 hidden]");
  option("--vocab", sizes.vocab, "Token ids; bytes are 256")->capture_default_str();
  option("--max-positions", max_positions, "Longest sequence of the model [--sequence]");
  option("--eps", sizes.eps, "Added to a norm's mean square")->capture_default_str();
  option("--rope-theta", sizes.rope_theta, "RoPE's base")->capture_default_str();
  command
      .add_flag("--tied,!--untied", sizes.tied, "One weight for embedding and head, or two [tied]")
      ->excludes(from)
      ->group(kGroup);
}

ModelConfig ModelFlags::build(int64_t sequence) const {
  if (!config.empty()) return load_model_config(config);
  const std::string source = "the model's sizes";
  require(sizes.heads >= 1 && sizes.hidden >= 1,
          source + ": --heads and --hidden must be at least 1");
  require(head_dim || sizes.hidden % sizes.heads == 0,
          fmt::format("{}: --heads {} does not divide --hidden {}; change one, or give --head-size",
                      source, sizes.heads, sizes.hidden));
  ModelConfig result;
  if (model == "gpt2") {
    require(!kv_heads && !head_dim && sizes.tied,
            "gpt2 has no --kv-heads, --head-size or --untied: leave them out");
    require(sizes.rope_theta == LlamaConfig().rope_theta,
            "gpt2 has no --rope-theta, its positions are learned: leave it out");
    result = Gpt2Config{.layers = sizes.layers,
                        .hidden = sizes.hidden,
                        .heads = sizes.heads,
                        .vocab = sizes.vocab,
                        .positions = max_positions.value_or(sequence),
                        .mlp = mlp.value_or(4 * sizes.hidden),
                        .eps = sizes.eps};
  } else {
    LlamaConfig llama = sizes;
    llama.kv_heads = kv_heads.value_or(sizes.heads);
    llama.head_dim = head_dim.value_or(sizes.hidden / sizes.heads);
    llama.mlp = mlp.value_or((sizes.hidden * 8 / 3 + 31) / 32 * 32);
    llama.max_positions = max_positions.value_or(sequence);
    result = llama;
  }
  try {
    check_model_config(result, source);
  } catch (const Error& error) {
    throw Error(with_flags(error.what()));
  }
  return result;
}

}  // namespace coda::tools
