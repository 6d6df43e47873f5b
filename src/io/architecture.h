// SPDX-License-Identifier: Apache-2.0
// The architectures whose config.json is read, checked and written. Each has one row in the table
// below and one file (config_NAME.cc). Architectures of LLaMA's family differ in few settings;
// config_family.cc has their common code.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "coda/model_config.h"
#include "io/config_rope.h"
#include "io/config_settings.h"

// The table, in the order in which messages name them. A row is the name of a function that says
// all of an architecture. It is a macro because a row is both a declaration and a call of it.
#define CODA_ARCHITECTURES(ROW) \
  ROW(llama)                    \
  ROW(gpt2)                     \
  ROW(qwen2)                    \
  ROW(qwen3)                    \
  ROW(qwen3_moe)                \
  ROW(mistral)                  \
  ROW(mixtral)                  \
  ROW(olmo2)                    \
  ROW(olmoe)                    \
  ROW(phi3)                     \
  ROW(smollm3)                  \
  ROW(gemma2)                   \
  ROW(gemma3)                   \
  ROW(gpt_neox)

namespace coda::io {

struct Architecture {
  const char* name;        // in config.json's architectures
  const char* model_type;  // and its model_type
  std::function<ModelConfig(const Settings& settings)> read;
  std::function<nlohmann::ordered_json(const ModelConfig& config)> write;  // but for these names
  std::function<bool(const ModelConfig& config)> has;                      // whether it is of this
  // Error that names the setting for sizes and settings that no model can have.
  std::function<void(const ModelConfig& config, const std::string& source)> check;
};

#define CODA_DECLARE(name) Architecture name();
CODA_ARCHITECTURES(CODA_DECLARE)
#undef CODA_DECLARE

// The one that a config.json names, by architectures or, without, by model_type. Error for others.
const Architecture& architecture_of(const Settings& settings);

// The one that a config is of. Error if its name is not known.
const Architecture& architecture_of(const ModelConfig& config);

// One whose config is a kind of its own.
template <class Config>
Architecture of_own_kind(const char* name, const char* model_type,
                         Config (*read)(const Settings& settings),
                         nlohmann::ordered_json (*write)(const Config& config),
                         void (*check)(const Config& config, const std::string& source)) {
  return {.name = name,
          .model_type = model_type,
          .read = [read](const Settings& settings) -> ModelConfig { return read(settings); },
          .write = [write](const ModelConfig& config) { return write(std::get<Config>(config)); },
          .has = [](const ModelConfig& config) { return std::holds_alternative<Config>(config); },
          .check = [check](const ModelConfig& config,
                           const std::string& source) { check(std::get<Config>(config), source); }};
}

// What transformers takes where a config.json of the family says nothing.
struct FamilyDefaults {
  double eps = 1e-6;
  double theta = 10000;
  double window_theta = 0;  // of RoPE in layers with the window; 0: as in others
  int64_t max_positions = 2048;
  bool tied = false;
  bool kv_heads_as_heads = true;         // else they must be given
  std::optional<int64_t> padding = {};   // pad_token_id
  std::optional<int64_t> head_dim = {};  // none: hidden_size / num_attention_heads
  RotaryPart rotary_part = RotaryPart::whole;
};

// Which products have biases where a config asks for them: attention_bias is of all four of
// attention, mlp_bias of the MLP's three.
enum class Biases : uint8_t { none, attention, attention_and_mlp };

// One of the family: what it takes where its config.json says nothing, and what else it has than
// LLaMA's sizes, RoPE, head and biases.
struct FamilyMember {
  const char* name;
  const char* model_type;
  FamilyDefaults defaults = {};
  Biases biases = Biases::none;
  bool is_silu = true;  // else `read` looks at the activation
  std::function<void(const Settings&, LlamaConfig&)> read = {};
  std::function<void(const LlamaConfig&, nlohmann::ordered_json&)> write = {};
};
Architecture of_family(const FamilyMember& member);

// layer_types, "sliding_attention" for layers with the window and "full_attention" for others, or
// where they are not given, `otherwise` of a layer. The window is sliding_window.
void read_windows(const Settings& settings, LlamaConfig& config, int64_t window,
                  const std::function<bool(int64_t)>& otherwise);

// sliding_window where use_sliding_window is true, `otherwise` where it is not given; else 0.
int64_t optional_window_of(const Settings& settings, int64_t otherwise);

// initializer_range; transformers takes 0.02 for 0 too.
double initializer_range_of(const Settings& settings);

// sliding_window where it is given and at least 1, `otherwise` where it is not, 0 where it is null.
int64_t window_of(const Settings& settings, int64_t otherwise);

// Adds sliding_window, null for none; and layer_types with it.
void write_window(const LlamaConfig& config, nlohmann::ordered_json& json);
void write_windows(const LlamaConfig& config, nlohmann::ordered_json& json);

}  // namespace coda::io
