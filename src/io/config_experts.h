// SPDX-License-Identifier: Apache-2.0
// The settings of config.json that architectures with a mixture of experts have in common.
#pragma once

#include "coda/model_config.h"
#include "io/config_settings.h"

namespace coda::io {

// The experts' number, how many a token has, and what must be off: the router's auxiliary loss is
// not part of the loss, as transformers leaves it out where output_router_logits is false.
Experts read_experts(const Settings& settings, int64_t count, int64_t chosen);

// Those of a config whose architecture must have some: without, 0 experts, which readers refuse.
inline Experts experts_of(const LlamaConfig& config) { return config.experts.value_or(Experts{}); }

// Adds what read_experts reads.
void write_experts(const LlamaConfig& config, nlohmann::ordered_json& json);

// Error for numbers of experts that no model can have. The config must have experts, and sizes that
// are good.
void check_experts(const LlamaConfig& config, const std::string& source);

}  // namespace coda::io
