// SPDX-License-Identifier: Apache-2.0
// LlamaForCausalLM's config.json. Biases are of all of attention's products, or of the MLP's.
#include "io/architecture.h"

namespace coda::io {

Architecture llama() {
  return of_family(
      {.name = "LlamaForCausalLM", .model_type = "llama", .biases = Biases::attention_and_mlp});
}

}  // namespace coda::io
