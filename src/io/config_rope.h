// SPDX-License-Identifier: Apache-2.0
// The part of config.json about rotary positions: as transformers 4 (rope_theta, rope_scaling) and
// 5 (rope_parameters) write it.
#pragma once

#include "coda/model_config.h"
#include "io/config_settings.h"

namespace coda::io {

// Fills rope_theta and rope_scaling, and window_rope_theta where `window_theta_otherwise` is not 0.
// Error for a type that is not supported.
void read_rope(const Settings& settings, LlamaConfig& config, double theta_otherwise,
               double window_theta_otherwise);

// Adds rope_theta, rope_scaling and, where it is not 0, rope_local_base_freq, which transformers 4
// and 5 read.
void write_rope(const LlamaConfig& config, nlohmann::ordered_json& json);

// Error, in config.json's names, for numbers that make no sense.
void check_rope(const LlamaConfig& config, const std::string& source);

}  // namespace coda::io
