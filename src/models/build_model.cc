// SPDX-License-Identifier: Apache-2.0
// A model is a kind of config and what its header declares for it.
#include "coda/models.h"
#include "models/gpt2.h"
#include "models/gpt_neox.h"
#include "models/llama.h"

namespace coda {
std::unique_ptr<ModelGraph> build_model(const ModelConfig& config, const ModelOptions& options) {
  return std::visit([&](const auto& model) { return build(model, options); }, config);
}

int64_t vocabulary_of(const ModelConfig& config) {
  return std::visit([](const auto& model) { return model.vocab; }, config);
}

int64_t parameter_count_of(const ModelConfig& config) {
  return std::visit([](const auto& model) { return parameter_count(model); }, config);
}

double training_flops_of_token(const ModelConfig& config, int64_t sequence) {
  return std::visit(
      [&](const auto& model) {
        const int64_t weights = parameter_count(model) - unused_by_a_token(model);
        const int64_t attention = model.layers * attention_columns(model) * sequence;
        return 6.0 * static_cast<double>(weights + attention);
      },
      config);
}

std::string description_of(const ModelConfig& config) {
  return std::visit([](const auto& model) { return description(model); }, config);
}

int64_t longest_sequence_of(const ModelConfig& config) {
  return std::visit([](const auto& model) { return longest_sequence(model); }, config);
}

}  // namespace coda
