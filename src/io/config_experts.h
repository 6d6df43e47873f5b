// SPDX-License-Identifier: Apache-2.0
// What config.json has alike for architectures with a mixture of experts.
#pragma once

#include "coda/model_config.h"
#include "io/config_settings.h"

namespace coda::io {

// The experts' number, how many a token has, and what must be off: the router's auxiliary loss is
// not part of the loss, as transformers leaves it out where output_router_logits is false.
Experts read_experts(const Settings& settings, int64_t count, int64_t chosen);

// The same, but for what an architecture reads of its own.
void write_experts(const Experts& experts, nlohmann::ordered_json& json);

}  // namespace coda::io
