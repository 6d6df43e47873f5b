// SPDX-License-Identifier: Apache-2.0
// OlmoeForCausalLM's config.json: a mixture of experts in the place of each MLP, and norms of the
// whole rows of q and k.
#include "io/architecture.h"
#include "io/config_experts.h"

namespace coda::io {

Architecture olmoe() {
  return of_family({.name = "OlmoeForCausalLM",
                    .model_type = "olmoe",
                    .defaults = {.eps = 1e-5, .max_positions = 4096, .padding = 1},
                    .biases = Biases::attention,
                    .read =
                        [](const Settings& settings, LlamaConfig& config) {
                          if (settings.find("clip_qkv") != nullptr)
                            settings.refuse("clip_qkv", "only null is supported");
                          config.query_key_norm = QueryKeyNorm::row;
                          config.experts = read_experts(settings, 64, 8);
                          config.experts->mlp = config.mlp;
                          config.experts->normalised = settings.flag("norm_topk_prob", false);
                        },
                    .write =
                        [](const LlamaConfig& config, nlohmann::ordered_json& json) {
                          write_experts(config, json);
                          json["norm_topk_prob"] = experts_of(config).normalised;
                        }});
}

}  // namespace coda::io
