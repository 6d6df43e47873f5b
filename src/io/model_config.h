// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face checkpoints, as transformers 4 (rope_theta, rope_scaling) and 5
// (rope_parameters) write it, to and from our plain configs. What a config asks for is either done
// or refused with one line: nothing that changes the mathematics is ignored. (Dropout is: a
// config's rates are for training elsewhere, and ours has none.)
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "coda/dtype.h"
#include "coda/model_config.h"

namespace coda::io {

// Reads config.json of a checkpoint folder. Throws Error naming the file, the setting, its value
// and what is supported.
ModelConfig read_model_config(const std::filesystem::path& folder);

// The same from text; `source` is what messages call it.
ModelConfig parse_model_config(std::string_view text, const std::string& source);

// The text of a config.json that transformers 4 and 5 read; `weights` is the type of the stored
// weights (f32, bf16, f16). parse_model_config of it gives `config` again.
std::string model_config_text(const ModelConfig& config, DType weights);

// The config.json `text`, which parse_model_config took, with another type of stored weights.
std::string config_with_weights_type(std::string_view text, DType weights);

}  // namespace coda::io
