// SPDX-License-Identifier: Apache-2.0
#include "io/config_experts.h"

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

void write_experts(const Experts& experts, nlohmann::ordered_json& json) {
  json["num_local_experts"] = experts.count;
  json["num_experts_per_tok"] = experts.chosen;
  json["output_router_logits"] = false;
}

}  // namespace coda::io
