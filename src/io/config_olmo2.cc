// SPDX-License-Identifier: Apache-2.0
// Olmo2ForCausalLM's config.json: norms of what a sublayer adds, and of the whole rows of q and k.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kOlmo2 = "Olmo2ForCausalLM";

ModelConfig read_olmo2(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config = read_family(settings, kOlmo2, {.eps = 1e-5});
  config.norms = NormPlace::after;
  config.query_key_norm = QueryKeyNorm::row;
  read_biases(settings, config, Biases::attention);
  return config;
}

nlohmann::ordered_json olmo2_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  write_biases(config, json, Biases::attention);
  return json;
}

}  // namespace

Architecture olmo2() { return {kOlmo2, "olmo2", read_olmo2, olmo2_json}; }

}  // namespace coda::io
