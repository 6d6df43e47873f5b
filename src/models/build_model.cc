// SPDX-License-Identifier: Apache-2.0
#include "models/build_model.h"

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

int64_t longest_sequence_of(const ModelConfig& config) {
  if (const auto* llama = std::get_if<LlamaConfig>(&config)) return llama->max_positions;
  return std::get<Gpt2Config>(config).positions;
}

}  // namespace coda
