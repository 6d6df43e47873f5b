// SPDX-License-Identifier: Apache-2.0
// LlamaForCausalLM's config.json. Biases are of all of attention's products, or of the MLP's.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kLlama = "LlamaForCausalLM";

ModelConfig read_llama(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config = read_family(settings, kLlama, {});
  read_biases(settings, config, Biases::attention_and_mlp);
  return config;
}

nlohmann::ordered_json llama_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  write_biases(config, json, Biases::attention_and_mlp);
  return json;
}

}  // namespace

Architecture llama() { return {kLlama, "llama", read_llama, llama_json}; }

}  // namespace coda::io
