// SPDX-License-Identifier: Apache-2.0
// MistralForCausalLM's config.json: a window in all layers.
#include "io/architecture.h"

namespace coda::io {

Architecture mistral() {
  return of_family({.name = "MistralForCausalLM",
                    .model_type = "mistral",
                    .defaults = {.max_positions = 131072, .kv_heads_as_heads = false},
                    .read =
                        [](const Settings& settings, LlamaConfig& config) {
                          if (settings.find("layer_types") != nullptr)
                            settings.refuse("layer_types",
                                            "all layers of Mistral are alike (leave it out)");
                          config.window = window_of(settings, 4096);
                        },
                    .write = write_window});
}

}  // namespace coda::io
