// SPDX-License-Identifier: Apache-2.0
// The part of config.json about RoPE, in the forms of transformers 4 (rope_theta, rope_scaling) and
// transformers 5 (rope_parameters).
#pragma once

#include "coda/model_config.h"
#include "io/config_settings.h"

namespace coda::io {

// Whether partial_rotary_factor may leave channels of a head that do not turn.
enum class RotaryPart : uint8_t { whole, any };

// Fills rope_theta, rope_scaling and rotary_dim, and window_rope_theta where
// `window_theta_otherwise` is not 0. Error for a type that is not supported.
void read_rope(const Settings& settings, LlamaConfig& config, double theta_otherwise,
               double window_theta_otherwise, RotaryPart part);

// Adds rope_theta, rope_scaling and, where it is not 0, rope_local_base_freq, which transformers 4
// and 5 read.
void write_rope(const LlamaConfig& config, nlohmann::ordered_json& json);

// What readers, who multiply it by head_dim and cut to a whole number, take as rotary_dim.
double rotary_share(int64_t rotary_dim, int64_t head_dim);

// Error, in config.json's names, for numbers that make no sense.
void check_rope(const LlamaConfig& config, const std::string& source);

}  // namespace coda::io
