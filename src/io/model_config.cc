// SPDX-License-Identifier: Apache-2.0
// Checks and writes model configs. The reader is in model_config_reader.cc.
#include "io/model_config.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/models.h"

namespace coda::io {
namespace {

using nlohmann::ordered_json;

// Names in messages are config.json's.
struct Checker {
  // A graph has tens of nodes a layer; no model has a hundredth of these.
  static constexpr int64_t kMostLayers = 10000;
  static constexpr int64_t kMostWeights = int64_t{1} << 40;

  const std::string& source;

  void layers(const char* name, int64_t value) const {
    if (value >= 1 && value <= kMostLayers) return;
    throw Error(source + ": " + name + " is " + std::to_string(value) + ", but must be from 1 to " +
                std::to_string(kMostLayers));
  }
  // Once the sizes of each tensor are known to be good.
  void weights(const ModelConfig& config) const {
    if (parameter_count_of(config) <= kMostWeights) return;
    throw Error(source + ": the model has " + std::to_string(parameter_count_of(config)) +
                " weights, more than 2^40: make it smaller");
  }

  void size(const char* name, int64_t value) const {
    if (value >= 1 && value <= INT32_MAX) return;
    throw Error(source + ": " + name + " is " + std::to_string(value) +
                ", but must be from 1 to 2147483647");
  }
  void positive(const char* name, double value) const {
    if (std::isfinite(value) && value > 0) return;
    throw Error(source + ": " + name + " is " + nlohmann::json(value).dump() +
                ", but must be a positive number");
  }
  void divides(const char* small, int64_t divisor, const char* large, int64_t value) const {
    if (value % divisor == 0) return;
    throw Error(source + ": " + small + " (" + std::to_string(divisor) + ") must divide " + large +
                " (" + std::to_string(value) + "): change one of the two");
  }
  // Weights of [rows, columns] are addressed in bytes with 64 bits; more than 2^40 elements is a
  // mistake.
  void product(const char* a, int64_t x, const char* b, int64_t y) const {
    if (x <= kMostWeights / y) return;
    throw Error(source + ": " + a + " (" + std::to_string(x) + ") times " + b + " (" +
                std::to_string(y) + ") is more than 2^40 weights in one tensor: make one smaller");
  }
};

void check(const LlamaConfig& config, const std::string& source) {
  const Checker must{source};
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
  must.weights(config);
  must.positive("rms_norm_eps", config.eps);
  must.positive("rope_theta", config.rope_theta);
  if (!config.rope_scaling) return;
  const Llama3RopeScaling& scaling = *config.rope_scaling;
  must.positive("rope factor", scaling.factor);
  must.positive("rope low_freq_factor", scaling.low_freq_factor);
  must.positive("rope high_freq_factor", scaling.high_freq_factor);
  must.size("rope original_max_position_embeddings", scaling.original_max_positions);
  if (scaling.factor < 1) {
    throw Error(source + ": rope factor is " + nlohmann::json(scaling.factor).dump() +
                ", but must be at least 1");
  }
  if (scaling.low_freq_factor >= scaling.high_freq_factor) {
    throw Error(source + ": rope low_freq_factor (" +
                nlohmann::json(scaling.low_freq_factor).dump() +
                ") must be below high_freq_factor (" +
                nlohmann::json(scaling.high_freq_factor).dump() + ")");
  }
}

void check(const Gpt2Config& config, const std::string& source) {
  const Checker must{source};
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

// torch_dtype and rope_theta with rope_scaling are transformers 4's names; 5 reads them too. Token
// ids are null: with none given, both would assume ids of a tokenizer that these weights may not
// have.
ordered_json json_of(const LlamaConfig& config) {
  ordered_json json = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"vocab_size", config.vocab},
      {"hidden_size", config.hidden},
      {"intermediate_size", config.mlp},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", config.max_positions},
      {"rms_norm_eps", config.eps},
      {"rope_theta", config.rope_theta},
      {"rope_scaling", nullptr},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"attention_dropout", 0.0},
      {"tie_word_embeddings", config.tied},
  };
  if (config.rope_scaling) {
    json["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", config.rope_scaling->factor},
        {"low_freq_factor", config.rope_scaling->low_freq_factor},
        {"high_freq_factor", config.rope_scaling->high_freq_factor},
        {"original_max_position_embeddings", config.rope_scaling->original_max_positions},
    };
  }
  return json;
}

ordered_json json_of(const Gpt2Config& config) {
  return {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", config.vocab},
      {"n_embd", config.hidden},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_positions", config.positions},
      {"n_inner", config.mlp},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", config.eps},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"tie_word_embeddings", true},
  };
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
  ordered_json json = std::visit([](const auto& model) { return json_of(model); }, config);
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = torch_name(weights);
  json["use_cache"] = true;
  return json.dump(2) + "\n";
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
