// SPDX-License-Identifier: Apache-2.0
#include "coda/models.h"

#include <algorithm>

#include "models/gpt2.h"
#include "models/llama.h"

namespace coda {

std::unique_ptr<ModelGraph> build_model(const ModelConfig& config, const ModelOptions& options) {
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) return build_llama(*llama, options);
  return build_gpt2(std::get<Gpt2Config>(config), options);
}

int64_t vocabulary_of(const ModelConfig& config) {
  return std::visit([](const auto& model) { return model.vocab; }, config);
}

int64_t parameter_count_of(const ModelConfig& config) {
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) return llama_parameter_count(*llama);
  const auto& gpt2 = std::get<Gpt2Config>(config);
  const int64_t matrices = (4 * gpt2.hidden + 2 * gpt2.mlp) * gpt2.hidden;
  const int64_t vectors = 9 * gpt2.hidden + gpt2.mlp;  // two norms, four biases
  return gpt2.layers * (matrices + vectors) + (gpt2.vocab + gpt2.positions + 2) * gpt2.hidden;
}

int64_t longest_sequence_of(const ModelConfig& config) {
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) {
    const auto* dynamic =
        llama->rope_scaling ? std::get_if<DynamicRopeScaling>(&*llama->rope_scaling) : nullptr;
    if (dynamic == nullptr) return llama->max_positions;
    const double longest = dynamic->factor * static_cast<double>(llama->max_positions);
    return static_cast<int64_t>(std::min(longest, 2147483647.0));
  }
  return std::get<Gpt2Config>(config).positions;
}

}  // namespace coda
