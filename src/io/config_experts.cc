// SPDX-License-Identifier: Apache-2.0
#include "io/config_experts.h"

#include "io/config_checker.h"

namespace coda::io {

Experts read_experts(const Settings& settings, int64_t count, int64_t chosen) {
  settings.must_be("output_router_logits", false,
                   "it adds the router's auxiliary loss to the loss, which is not there");
  if (settings.number("router_jitter_noise", 0) != 0)
    settings.refuse("router_jitter_noise", "only 0 is supported");
  // transformers reads both names, whichever an architecture writes.
  const bool is_local = settings.find("num_local_experts") != nullptr;
  return {.count = settings.whole(is_local ? "num_local_experts" : "num_experts", count),
          .chosen = settings.whole("num_experts_per_tok", chosen)};
}

void write_experts(const LlamaConfig& config, nlohmann::ordered_json& json) {
  const Experts experts = experts_of(config);
  json["num_local_experts"] = experts.count;
  json["num_experts_per_tok"] = experts.chosen;
  json["output_router_logits"] = false;
}

void check_experts(const LlamaConfig& config, const std::string& source) {
  const Experts& experts = *config.experts;
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

}  // namespace coda::io
