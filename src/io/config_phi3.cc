// SPDX-License-Identifier: Apache-2.0
// Phi3ForCausalLM's config.json: one weight for q, k and v, one for gate and up.
#include "io/architecture.h"

namespace coda::io {
namespace {

void read_phi3(const Settings& settings, LlamaConfig& config) {
  if (config.rope_scaling) {
    // transformers would take 'yarn' for longrope, and refuses the others.
    if (!std::holds_alternative<LongRopeScaling>(*config.rope_scaling))
      throw Error(settings.source() + ": Phi-3 has RoPE of type 'default' or 'longrope' only");
    settings.whole("original_max_position_embeddings");  // which transformers reads here only
  }
  settings.pass_over({"original_max_position_embeddings"});
  config.joined = true;
  config.window = window_of(settings, 0);
}

void write_phi3(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["resid_pdrop"] = 0.0;
  if (config.rope_scaling) {
    json["original_max_position_embeddings"] =
        std::get<LongRopeScaling>(*config.rope_scaling).original_max_positions;
  }
  json["embd_pdrop"] = 0.0;
  write_window(config, json);
}

}  // namespace

Architecture phi3() {
  return of_family({.name = "Phi3ForCausalLM",
                    .model_type = "phi3",
                    .defaults = {.eps = 1e-5,
                                 .max_positions = 4096,
                                 .padding = 32000,
                                 .rotary_part = RotaryPart::any},
                    .read = read_phi3,
                    .write = write_phi3});
}

}  // namespace coda::io
