// SPDX-License-Identifier: Apache-2.0
// What config.json has alike for all decoders of LLaMA's family.
#include <algorithm>

#include "io/architecture.h"
#include "io/config_checker.h"
#include "io/config_experts.h"
#include "io/config_rope.h"

namespace coda::io {
namespace {

// The row of pad_token_id, as PyTorch's padding_idx: a negative id counts from the end. A default
// id beyond the vocabulary is ignored, because it belongs to a larger vocabulary.
std::optional<int64_t> padding_row_of(const Settings& settings, int64_t vocab,
                                      std::optional<int64_t> otherwise) {
  const char* name = "pad_token_id";
  if (settings.is_null(name)) return std::nullopt;
  if (settings.find(name) == nullptr)
    return otherwise && *otherwise < vocab ? otherwise : std::nullopt;
  const int64_t row = settings.whole(name);
  if (row >= vocab || row < -vocab)
    settings.refuse(name, "must be below vocab_size, " + std::to_string(vocab) +
                              ", or null for a model without padding");
  return row < 0 ? row + vocab : row;
}

// The sizes, RoPE and the head, with `architecture` as the config's name.
LlamaConfig read_family(const Settings& settings, const char* architecture,
                        const FamilyDefaults& defaults) {
  LlamaConfig config;
  config.architecture = architecture;
  config.layers = settings.whole("num_hidden_layers");
  config.hidden = settings.whole("hidden_size");
  config.heads = settings.whole("num_attention_heads");
  config.kv_heads = defaults.kv_heads_as_heads ? settings.whole("num_key_value_heads", config.heads)
                                               : settings.whole("num_key_value_heads");
  if (settings.find("head_dim") != nullptr || defaults.head_dim) {
    config.head_dim = settings.whole("head_dim", defaults.head_dim);
  } else {
    if (config.heads < 1 || config.hidden % config.heads != 0) {
      throw Error(settings.source() + ": num_attention_heads (" + std::to_string(config.heads) +
                  ") must divide hidden_size (" + std::to_string(config.hidden) +
                  ") where no head_dim is given: change one of them");
    }
    config.head_dim = config.hidden / config.heads;
  }
  config.mlp = settings.whole("intermediate_size");
  config.vocab = settings.whole("vocab_size");
  config.eps = settings.number("rms_norm_eps", defaults.eps);
  config.max_positions = settings.whole("max_position_embeddings", defaults.max_positions);
  config.tied = settings.flag("tie_word_embeddings", defaults.tied);
  config.initializer_range = initializer_range_of(settings);
  config.padding_row = padding_row_of(settings, config.vocab, defaults.padding);
  read_rope(settings, config, defaults.theta, defaults.window_theta, defaults.rotary_part);
  return config;
}

nlohmann::ordered_json family_json(const LlamaConfig& config) {
  nlohmann::ordered_json json = {
      {"vocab_size", config.vocab},
      {"hidden_size", config.hidden},
      {"intermediate_size", config.mlp},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", config.max_positions},
      {"rms_norm_eps", config.eps},
      {"attention_dropout", 0.0},
      {"initializer_range", config.initializer_range},
      {"tie_word_embeddings", config.tied},
  };
  json["pad_token_id"] = nullptr;
  if (config.padding_row) json["pad_token_id"] = *config.padding_row;
  write_rope(config, json);
  return json;
}

void check_family(const LlamaConfig& config, const std::string& source) {
  const ConfigChecker must{source};
  must.layers("num_hidden_layers", config.layers);
  must.size("hidden_size", config.hidden);
  must.size("num_attention_heads", config.heads);
  must.size("num_key_value_heads", config.kv_heads);
  must.size("head_dim", config.head_dim);
  must.size("intermediate_size", config.mlp);
  must.size("vocab_size", config.vocab);
  must.size("max_position_embeddings", config.max_positions);
  must.divides("num_key_value_heads", config.kv_heads, "num_attention_heads", config.heads);
  if (config.head_dim % 2 != 0) {
    throw Error(source + ": head_dim is " + std::to_string(config.head_dim) +
                ", but must be even (rotary positions turn pairs of channels): change it, or "
                "hidden_size or num_attention_heads, whose quotient it is if it is not given");
  }
  must.product("num_attention_heads", config.heads, "head_dim", config.head_dim);
  must.product("num_attention_heads * head_dim", config.heads * config.head_dim, "hidden_size",
               config.hidden);
  must.product("intermediate_size", config.mlp, "hidden_size", config.hidden);
  must.product("vocab_size", config.vocab, "hidden_size", config.hidden);
  if (config.experts) check_experts(config, source);
  must.weights(config);
  must.positive("rms_norm_eps", config.eps);
  must.positive("initializer_range", config.initializer_range);
  require(!config.padding_row || (*config.padding_row >= 0 && *config.padding_row < config.vocab),
          source + ": pad_token_id must be from 0 to vocab_size, " + std::to_string(config.vocab));
  check_rope(config, source);
  const auto for_each_layer = [&](const char* name, const std::vector<bool>& flags) {
    require(flags.empty() || std::ssize(flags) == config.layers,
            source + ": " + name + " has " + std::to_string(flags.size()) + " entries, but " +
                std::to_string(config.layers) + " layers need one each");
  };
  for_each_layer("layer_types", config.windowed);
  for_each_layer("no_rope_layers", config.rotated);
  if (config.experts) for_each_layer("mlp_only_layers", config.experts->layers);
  if (config.window != 0) must.size("sliding_window", config.window);
  if (config.query_scalar != 0) must.positive("query_pre_attn_scalar", config.query_scalar);
  if (config.score_cap != 0) must.positive("attn_logit_softcapping", config.score_cap);
  if (config.logit_cap != 0) must.positive("final_logit_softcapping", config.logit_cap);
}

}  // namespace

Architecture of_family(const FamilyMember& member) {
  const auto read = [member](const Settings& settings) -> ModelConfig {
    if (member.is_silu) {
      const std::string activation = settings.word("hidden_act", "silu");
      if (activation != "silu" && activation != "swish")
        settings.refuse("hidden_act", "only 'silu' is supported");
    }
    LlamaConfig config = read_family(settings, member.name, member.defaults);
    if (member.biases != Biases::none)
      config.qkv_bias = config.output_bias = settings.flag("attention_bias", false);
    if (member.biases == Biases::attention_and_mlp)
      config.mlp_bias = settings.flag("mlp_bias", false);
    if (member.read) member.read(settings, config);
    return config;
  };
  const auto write = [member](const ModelConfig& of) {
    const auto& config = std::get<LlamaConfig>(of);
    nlohmann::ordered_json json = family_json(config);
    if (member.biases != Biases::none) json["attention_bias"] = config.qkv_bias;
    if (member.biases == Biases::attention_and_mlp) json["mlp_bias"] = config.mlp_bias;
    if (member.write) member.write(config, json);
    return json;
  };
  const auto has = [member](const ModelConfig& of) {
    const auto* config = std::get_if<LlamaConfig>(&of);
    return config != nullptr && config->architecture == member.name;
  };
  const auto check = [](const ModelConfig& of, const std::string& source) {
    check_family(std::get<LlamaConfig>(of), source);
  };
  return {member.name, member.model_type, read, write, has, check};
}

double initializer_range_of(const Settings& settings) {
  const double range = settings.number("initializer_range", 0.02);
  if (!(range >= 0)) settings.refuse("initializer_range", "must be a positive number");
  return range == 0 ? 0.02 : range;
}

int64_t window_of(const Settings& settings, int64_t otherwise) {
  if (settings.is_null("sliding_window")) return 0;
  const int64_t window = settings.whole("sliding_window", otherwise);
  if (settings.find("sliding_window") != nullptr && (window < 1 || window > INT32_MAX))
    settings.refuse("sliding_window", "must be from 1 to 2147483647, or null for none");
  return window;
}

int64_t optional_window_of(const Settings& settings, int64_t otherwise) {
  settings.pass_over({"sliding_window"});
  return settings.flag("use_sliding_window", false) ? window_of(settings, otherwise) : 0;
}

void read_windows(const Settings& settings, LlamaConfig& config, int64_t window,
                  const std::function<bool(int64_t)>& otherwise) {
  // Other numbers of layers are refused when the config is checked.
  if (config.layers < 1 || config.layers > ConfigChecker::kMostLayers) return;
  std::vector<bool> windowed;
  if (const nlohmann::json* types = settings.find("layer_types"); types == nullptr) {
    for (int64_t i = 0; i < config.layers; ++i) windowed.push_back(otherwise(i));
  } else {
    const bool is_list = types->is_array() && std::ssize(*types) == config.layers &&
                         std::ranges::all_of(*types, [](const nlohmann::json& type) {
                           return type == "full_attention" || type == "sliding_attention";
                         });
    if (!is_list) {
      settings.refuse("layer_types",
                      "must be 'full_attention' or 'sliding_attention' for each of " +
                          std::to_string(config.layers) + " layers");
    }
    for (const nlohmann::json& type : *types) windowed.push_back(type == "sliding_attention");
  }
  const auto count = std::ranges::count(windowed, true);
  if (count == 0) return;
  if (window == 0)
    settings.refuse("sliding_window", "layer_types has 'sliding_attention', which needs it");
  config.window = window;
  if (count < config.layers) config.windowed = std::move(windowed);
}

void write_window(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["sliding_window"] = nullptr;
  if (config.window != 0) json["sliding_window"] = config.window;
}

void write_windows(const LlamaConfig& config, nlohmann::ordered_json& json) {
  write_window(config, json);
  json["layer_types"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i) {
    const bool is = config.window != 0 && (config.windowed.empty() || config.windowed[i]);
    json["layer_types"].push_back(is ? "sliding_attention" : "full_attention");
  }
}

}  // namespace coda::io
