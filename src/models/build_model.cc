// SPDX-License-Identifier: Apache-2.0
// A model is a kind of config and what its header declares for it.
#include <cmath>

#include "coda/error.h"
#include "coda/models.h"
#include "models/experts.h"
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

int64_t rope_length_of(const ModelConfig& config, int64_t length) {
  const auto* llama = std::get_if<LlamaConfig>(&config);
  return llama == nullptr ? 1 : rope_length(*llama, length);
}

int64_t expert_choices_of(const ModelConfig& config) {
  const auto* llama = std::get_if<LlamaConfig>(&config);
  return llama == nullptr ? 0 : expert_choices(*llama);
}

int64_t expert_rows_of(const ModelConfig& config, double capacity, int64_t tokens) {
  require(std::isfinite(capacity) && capacity >= 0,
          "the capacity of experts must be a number from 0 on (--expert-capacity)");
  if (capacity == 0) return 0;
  require(expert_choices_of(config) > 0,
          "a capacity of experts is given, but the model has none: " + description_of(config) +
              " (leave --expert-capacity out)");
  return expert_rows(*std::get<LlamaConfig>(config).experts, capacity, tokens);
}

}  // namespace coda
