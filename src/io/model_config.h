// SPDX-License-Identifier: Apache-2.0
// Converts the config.json of a Hugging Face checkpoint to the configs of coda/model_config.h and
// back. It reads files of transformers 4 (rope_theta, rope_scaling) and of transformers 5
// (rope_parameters). A setting that changes the model's results is either supported or rejected
// with a one-line error. Dropout is the exception: it is ignored, and a message reports this.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "coda/dtype.h"
#include "coda/model_config.h"

namespace coda::io {

// Reads config.json of a checkpoint folder. Where it ties the head and the folder's weights have
// another one beside the embedding, the config is not tied, as transformers has it. Throws Error
// naming the file, the setting, its value and what is supported.
ModelConfig read_model_config(const std::filesystem::path& folder);

// What a config.json says, as it stands, and what it has besides.
struct ReadConfig {
  ModelConfig config;
  std::vector<std::string> unknown{};   // settings that nobody knows
  std::vector<std::string> dropouts{};  // "attn_pdrop 0.1"
};
ReadConfig read_config(const std::filesystem::path& folder);
ReadConfig read_config(std::string_view text, const std::string& source);

// The same from text; `source` is what messages call it.
ModelConfig parse_model_config(std::string_view text, const std::string& source);

// The text of a config.json that transformers 4 and 5 read; `weights` is the type of the stored
// weights (f32, bf16, f16). parse_model_config of it gives `config` again.
std::string model_config_text(const ModelConfig& config, DType weights);

// The config.json `text`, which parse_model_config took, with the type of stored weights, and with
// whether the head is tied, as they are now.
std::string config_with_weights(std::string_view text, const ModelConfig& config, DType weights);

}  // namespace coda::io
