// SPDX-License-Identifier: Apache-2.0
// The named cases of plans: a LLaMA layer alone between two others, and two layers between
// embedding and head; small and large; in fp32 at a CPU's rates and in bf16 at an H200's.
#pragma once

#include "plan/blocks.h"

namespace coda {

struct LlamaCase {
  std::string name;
  bool whole = false;  // with embedding, head and loss
  bool large = false;
  bool h200 = false;
  Objective objective = Objective::memory;
};

inline std::vector<LlamaCase> llama_cases() {
  std::vector<LlamaCase> cases;
  for (const bool whole : {false, true}) {
    for (const bool large : {false, true}) {
      for (const bool h200 : {false, true}) {
        for (const Objective objective : {Objective::memory, Objective::speed}) {
          const std::string name = std::string(whole ? "model" : "layer") +
                                   (large ? "_16384x4096" : "_2048x576") +
                                   (h200 ? "_bf16_h200" : "_f32_cpu") +
                                   (objective == Objective::memory ? "_memory" : "_speed");
          cases.push_back({name, whole, large, h200, objective});
        }
      }
    }
  }
  return cases;
}

inline void build(const LlamaCase& c, Block& b, CompileOptions& options) {
  const LlamaSizes small{.hidden = 576,
                         .heads = 9,
                         .kv_heads = 3,
                         .head_dim = 64,
                         .mlp = 1536,
                         .vocab = 49152,
                         .sequence = 512};
  const LlamaSizes large{.hidden = 4096,
                         .heads = 32,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .mlp = 11008,
                         .vocab = 128256,
                         .sequence = 4096};
  b.storage = c.h200 ? DType::bf16 : DType::f32;
  if (c.whole) {
    llama_model(b, 2, false, c.large ? large : small);
  } else {
    llama_layer_alone(b, c.large ? large : small);
  }
  for (GradientRequest& g : b.request.gradients) g.dtype = b.storage;
  options.storage = b.storage;
  options.sizes = {{"M", c.large ? 16384 : 2048}};
  options.rates = c.h200 ? h200_rates() : cpu_rates();
  options.objective = c.objective;
}

}  // namespace coda
