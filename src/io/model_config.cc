// SPDX-License-Identifier: Apache-2.0
// Checks and writes model configs. The reader is in model_config_reader.cc.
#include "io/model_config.h"

#include <nlohmann/json.hpp>

#include "coda/checkpoint.h"
#include "coda/error.h"
#include "io/architecture.h"
#include "io/config_checker.h"
#include "io/config_rope.h"

namespace coda::io {
namespace {

using nlohmann::ordered_json;

void check(const Experts& experts, const LlamaConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.size("num_experts", experts.count);
  must.size("moe_intermediate_size", experts.mlp);
  require(experts.count * config.layers <= ConfigChecker::kMostExperts,
          source + ": num_experts (" + std::to_string(experts.count) + ") in " +
              std::to_string(config.layers) + " layers is more than " +
              std::to_string(ConfigChecker::kMostExperts) + " experts: take fewer");
  must.product("num_experts * moe_intermediate_size", experts.count * experts.mlp, "hidden_size",
               config.hidden);
  require(experts.chosen >= 1 && experts.chosen <= experts.count,
          source + ": num_experts_per_tok is " + std::to_string(experts.chosen) +
              ", but must be from 1 to num_experts, " + std::to_string(experts.count));
  require(!config.mlp_bias && !config.joined && !config.gelu,
          source + ": experts have no biases, no joined weights and SiLU only");
}

void check(const LlamaConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("num_hidden_layers", config.layers);
  must.size("hidden_size", config.hidden);
  must.size("num_attention_heads", config.heads);
  must.size("num_key_value_heads", config.kv_heads);
  must.size("head_dim", config.head_dim);
  must.size("intermediate_size", config.mlp);
  must.size("vocab_size", config.vocab);
  must.size("max_position_embeddings", config.max_positions);
  must.divides("num_key_value_heads", config.kv_heads, "num_attention_heads", config.heads);
  if (config.head_dim % 2 != 0) {
    throw Error(source + ": head_dim is " + std::to_string(config.head_dim) +
                ", but must be even (rotary positions turn pairs of channels): change it, or "
                "hidden_size or num_attention_heads, whose quotient it is if it is not given");
  }
  must.product("num_attention_heads", config.heads, "head_dim", config.head_dim);
  must.product("num_attention_heads * head_dim", config.heads * config.head_dim, "hidden_size",
               config.hidden);
  must.product("intermediate_size", config.mlp, "hidden_size", config.hidden);
  must.product("vocab_size", config.vocab, "hidden_size", config.hidden);
  if (config.experts) check(*config.experts, config, source);
  must.weights(config);
  must.positive("rms_norm_eps", config.eps);
  check_rope(config, source);
  const auto for_each_layer = [&](const char* name, const std::vector<bool>& flags) {
    require(flags.empty() || std::ssize(flags) == config.layers,
            source + ": " + name + " has " + std::to_string(flags.size()) + " entries, but " +
                std::to_string(config.layers) + " layers need one each");
  };
  for_each_layer("layer_types", config.windowed);
  for_each_layer("no_rope_layers", config.rotated);
  if (config.experts) for_each_layer("mlp_only_layers", config.experts->layers);
  if (config.window != 0) must.size("sliding_window", config.window);
  if (config.query_scalar != 0) must.positive("query_pre_attn_scalar", config.query_scalar);
  if (config.score_cap != 0) must.positive("attn_logit_softcapping", config.score_cap);
  if (config.logit_cap != 0) must.positive("final_logit_softcapping", config.logit_cap);
}

void check(const Gpt2Config& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("n_layer", config.layers);
  must.size("n_embd", config.hidden);
  must.size("n_head", config.heads);
  must.size("vocab_size", config.vocab);
  must.size("n_positions", config.positions);
  must.size("n_inner", config.mlp);
  must.divides("n_head", config.heads, "n_embd", config.hidden);
  must.product("n_inner", config.mlp, "n_embd", config.hidden);
  must.product("vocab_size", config.vocab, "n_embd", config.hidden);
  must.product("n_positions", config.positions, "n_embd", config.hidden);
  must.product("n_embd * 3", 3 * config.hidden, "n_embd", config.hidden);
  must.weights(config);
  must.positive("layer_norm_epsilon", config.eps);
}

void check(const GptNeoxConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("num_hidden_layers", config.layers);
  must.size("hidden_size", config.hidden);
  must.size("num_attention_heads", config.heads);
  must.size("intermediate_size", config.mlp);
  must.size("vocab_size", config.vocab);
  must.size("max_position_embeddings", config.max_positions);
  must.divides("num_attention_heads", config.heads, "hidden_size", config.hidden);
  must.product("intermediate_size", config.mlp, "hidden_size", config.hidden);
  must.product("vocab_size", config.vocab, "hidden_size", config.hidden);
  must.product("hidden_size * 3", 3 * config.hidden, "hidden_size", config.hidden);
  must.weights(config);
  must.positive("layer_norm_eps", config.eps);
  must.positive("rotary_emb_base", config.rope_theta);
  const int64_t head = config.hidden / config.heads;
  require(head % 2 == 0 && config.rotary_dim >= 2 && config.rotary_dim <= head &&
              config.rotary_dim % 2 == 0,
          source + ": rotary_pct turns " + std::to_string(config.rotary_dim) +
              " channels of heads of " + std::to_string(head) +
              ", but both must be even and at least 2 channels turn: change one of the two");
}

const char* torch_name(DType type) {
  switch (type) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: break;
  }
  throw InternalError("model_config_text: weights are f32, bf16 or f16");
}

}  // namespace

std::string model_config_text(const ModelConfig& config, DType weights) {
  check_model_config(config, "model config");
  // torch_dtype is transformers 4's name; 5 reads it too. Token ids are null: with none given, both
  // would assume ids of a tokenizer that these weights may not have.
  const Architecture& architecture = architecture_of(config);
  ordered_json json = {{"architectures", {architecture.name}},
                       {"model_type", architecture.model_type}};
  json.update(architecture.write(config));
  json["pad_token_id"] = nullptr;
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(weights);
  json["use_cache"] = true;
  const std::string text = json.dump(2) + "\n";
  require(parse_model_config(text, "model config") == config,
          std::string("model config: ") + architecture.name +
              " has not all of the settings that the model has (give another architecture)");
  return text;
}

std::string config_with_weights_type(std::string_view text, DType weights) {
  ordered_json json = ordered_json::parse(text);
  // transformers 5 writes dtype, 4 torch_dtype.
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(weights);
  return json.dump(2) + "\n";
}

}  // namespace coda::io

namespace coda {

void check_model_config(const ModelConfig& config, const std::string& source) {
  std::visit([&](const auto& model) { io::check(model, source); }, config);
}

}  // namespace coda
