// SPDX-License-Identifier: Apache-2.0
// Olmo2ForCausalLM's config.json: norms of what a sublayer adds, and of the whole rows of q and k.
#include "io/architecture.h"

namespace coda::io {

Architecture olmo2() {
  return of_family({.name = "Olmo2ForCausalLM",
                    .model_type = "olmo2",
                    .defaults = {.eps = 1e-5, .padding = 1},
                    .biases = Biases::attention,
                    .read = [](const Settings&, LlamaConfig& config) {
                      config.norms = NormPlace::after;
                      config.query_key_norm = QueryKeyNorm::row;
                    }});
}

}  // namespace coda::io
