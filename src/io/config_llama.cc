// SPDX-License-Identifier: Apache-2.0
// LlamaForCausalLM's config.json. Biases are of all of attention's products, or of the MLP's.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kLlama = "LlamaForCausalLM";

ModelConfig read_llama(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config = read_family(settings, kLlama, {});
  config.qkv_bias = config.output_bias = settings.flag("attention_bias", false);
  config.mlp_bias = settings.flag("mlp_bias", false);
  return config;
}

nlohmann::ordered_json llama_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.mlp_bias;
  return json;
}

}  // namespace

Architecture llama() { return {kLlama, "llama", read_llama, llama_json}; }

}  // namespace coda::io
