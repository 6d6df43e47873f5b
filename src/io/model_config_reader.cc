// SPDX-License-Identifier: Apache-2.0
// Reads config.json. Each setting is required, has transformers' default, or must have the one
// value that we implement; what an architecture does not read is judged in config_others.h.
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/checkpoint.h"
#include "io/architecture.h"
#include "io/config_others.h"
#include "io/config_settings.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/model_config.h"
#include "io/safetensors.h"

namespace coda::io {

ReadConfig read_config(std::string_view text, const std::string& source) {
  const nlohmann::json object = parse_json(text, source);
  const Settings settings(object, source);
  const Architecture& architecture = architecture_of(settings);
  if (settings.find("quantization_config") != nullptr) {
    throw Error(source +
                ": quantization_config is given, but quantized weights are not supported (convert "
                "the checkpoint to F32, BF16 or F16)");
  }
  ReadConfig read{.config = architecture.read(settings)};
  read.dropouts = dropout_settings(settings, architecture);
  read.unknown = unknown_settings(settings, architecture);
  check_model_config(read.config, source);
  return read;
}

ReadConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return read_config(read_file(file), printable(file));
}

ModelConfig parse_model_config(std::string_view text, const std::string& source) {
  return read_config(text, source).config;
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  ModelConfig config = read_config(folder).config;
  bool& tied = std::visit([](auto& model) -> bool& { return model.tied; }, config);
  tied = tied && !has_head_of_its_own(folder);
  return config;
}

}  // namespace coda::io
