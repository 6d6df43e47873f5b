// SPDX-License-Identifier: Apache-2.0
// Phi3ForCausalLM's config.json: one weight for q, k and v, one for gate and up.
#include "io/architecture.h"

namespace coda::io {
namespace {

constexpr const char* kPhi3 = "Phi3ForCausalLM";

ModelConfig read_phi3(const Settings& settings) {
  require_silu(settings);
  LlamaConfig config = read_family(settings, kPhi3, {.eps = 1e-5, .max_positions = 4096});
  // transformers would take any other for one of its own, longrope.
  if (config.rope_scaling) {
    throw Error(settings.source() +
                ": Phi-3 is supported without scaled positions only (rope_type 'default')");
  }
  config.joined = true;
  config.window = window_of(settings, 0);
  return config;
}

nlohmann::ordered_json phi3_json(const ModelConfig& of) {
  const auto& config = std::get<LlamaConfig>(of);
  nlohmann::ordered_json json = family_json(config);
  json["resid_pdrop"] = 0.0;
  json["embd_pdrop"] = 0.0;
  json["sliding_window"] = nullptr;
  if (config.window != 0) json["sliding_window"] = config.window;
  return json;
}

}  // namespace

Architecture phi3() { return {kPhi3, "phi3", read_phi3, phi3_json}; }

}  // namespace coda::io
