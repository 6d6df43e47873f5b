// SPDX-License-Identifier: Apache-2.0
// A model and a text small enough for tests that train.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "coda/model_config.h"
#include "coda/model_trainer.h"
#include "coda/text_data.h"

namespace coda {

inline ModelConfig tiny_model() {
  LlamaConfig config;
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.mlp = 48;
  config.vocab = 256;
  config.tied = true;
  config.max_positions = 64;
  return config;
}

inline ModelConfig tiny_model_of_wide_rows() {
  auto config = std::get<LlamaConfig>(tiny_model());
  config.hidden = 128;
  config.heads = 2;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.mlp = 192;
  return config;
}

// As from a checkpoint.
inline void go_on_from(ModelTrainer& resumed, const ModelTrainer& whole) {
  resumed.weights = whole.weights;
  resumed.states = whole.states;
  resumed.eight_bit_scales = whole.eight_bit_scales;
  resumed.step_count = whole.step_count;
  resumed.restored();
}

// Numbers that count up, a token a byte.
inline Tokens counting_text(int numbers) {
  auto text = std::make_shared<std::string>();
  for (int i = 0; i < numbers; ++i) *text += std::to_string(i % 50) + " ";
  Tokens tokens;
  tokens.source = "counting";
  tokens.bytes = std::as_bytes(std::span(*text));
  tokens.owner = text;
  return tokens;
}

inline ModelTrainSettings tiny_settings() {
  ModelTrainSettings settings;
  settings.model = tiny_model();
  settings.batch = 4;
  settings.sequence = 24;
  settings.schedule = {.peak = 1e-2, .floor = 1e-3, .warmup_steps = 5, .total_steps = 60};
  return settings;
}

}  // namespace coda
