// SPDX-License-Identifier: Apache-2.0
// Flags that describe a model: a config.json, or its sizes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coda/model_config.h"

namespace CLI {
class App;
}

namespace coda::tools {

// Prints notes on a model (coda/checkpoint.h) to the standard error.
void say_notes(const std::vector<std::string>& notes);

struct ModelFlags {
  std::string config;  // a folder with config.json
  std::string model = "llama";
  LlamaConfig sizes;  // for gpt2 those that it has
  std::optional<int64_t> kv_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> mlp;
  std::optional<int64_t> max_positions;

  ModelFlags();
  void add_to(CLI::App& command);
  // The checked config; the default number of positions is `sequence`.
  ModelConfig build(int64_t sequence) const;
};

}  // namespace coda::tools
