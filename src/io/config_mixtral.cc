// SPDX-License-Identifier: Apache-2.0
// MixtralForCausalLM's config.json: as Mistral's, with a mixture of experts in the place of each
// MLP. Weights of the experts that are chosen add up to 1.
#include "io/architecture.h"
#include "io/config_experts.h"

namespace coda::io {
namespace {

void read_mixtral(const Settings& settings, LlamaConfig& config) {
  config.window = window_of(settings, 0);
  config.experts = read_experts(settings, 8, 2);
  config.experts->mlp = config.mlp;
  config.experts->normalised = true;
  config.experts->names = ExpertNames::block_sparse_moe;
}

void write_mixtral(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_window(config, json);
  write_experts(config, json);
}

}  // namespace

Architecture mixtral() {
  return of_family(
      {.name = "MixtralForCausalLM",
       .model_type = "mixtral",
       .defaults = {.eps = 1e-5, .theta = 1e6, .max_positions = 131072, .kv_heads_as_heads = false},
       .read = read_mixtral,
       .write = write_mixtral});
}

}  // namespace coda::io
