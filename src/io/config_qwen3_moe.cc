// SPDX-License-Identifier: Apache-2.0
// Qwen3MoeForCausalLM's config.json: as Qwen3's, with a mixture of experts in the place of the MLP
// in every decoder_sparse_step-th layer, but for mlp_only_layers. A window is of all layers.
#include <algorithm>

#include "io/architecture.h"
#include "io/config_checker.h"
#include "io/config_experts.h"

namespace coda::io {
namespace {

std::vector<bool> layers_with_experts(const Settings& settings, int64_t layers) {
  std::vector<bool> has;
  if (layers < 1 || layers > ConfigChecker::kMostLayers)
    return has;  // refused when the config is checked
  const int64_t step = settings.whole("decoder_sparse_step", 1);
  if (step < 1) settings.refuse("decoder_sparse_step", "must be at least 1");
  for (int64_t i = 0; i < layers; ++i) has.push_back((i + 1) % step == 0);
  if (const nlohmann::json* without = settings.find("mlp_only_layers"); without != nullptr) {
    const auto is_layer = [&](const nlohmann::json& one) {
      return one.is_number_integer() && one >= 0 && one < layers;
    };
    if (!without->is_array() || !std::ranges::all_of(*without, is_layer))
      settings.refuse("mlp_only_layers", "must be a list of layers, the first of which is 0");
    for (const nlohmann::json& one : *without) has[one.get<size_t>()] = false;
  }
  const bool all = std::ranges::find(has, false) == has.end();
  return all ? std::vector<bool>{} : has;
}

void read_qwen3_moe(const Settings& settings, LlamaConfig& config) {
  config.query_key_norm = QueryKeyNorm::head;
  config.window = optional_window_of(settings, 4096);
  config.experts = read_experts(settings, 128, 8);
  config.experts->mlp = settings.whole("moe_intermediate_size", 768);
  config.experts->normalised = settings.flag("norm_topk_prob", false);
  config.experts->layers = layers_with_experts(settings, config.layers);
}

void write_qwen3_moe(const LlamaConfig& config, nlohmann::ordered_json& json) {
  const Experts experts = experts_of(config);
  json["use_sliding_window"] = config.window != 0;
  write_window(config, json);
  write_experts(config, json);
  json["moe_intermediate_size"] = experts.mlp;
  json["norm_topk_prob"] = experts.normalised;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < experts.layers.size(); ++i)
    if (!experts.layers[i]) json["mlp_only_layers"].push_back(i);
}

}  // namespace

Architecture qwen3_moe() {
  return of_family({.name = "Qwen3MoeForCausalLM",
                    .model_type = "qwen3_moe",
                    .defaults = {.max_positions = 32768, .kv_heads_as_heads = false},
                    .biases = Biases::attention,
                    .read = read_qwen3_moe,
                    .write = write_qwen3_moe});
}

}  // namespace coda::io
