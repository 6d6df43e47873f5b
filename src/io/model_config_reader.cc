// SPDX-License-Identifier: Apache-2.0
// Reads config.json. Each setting is required, has transformers' default, or must have the one
// value that we implement; names that we do not know are for other parts of transformers and are
// passed over.
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "coda/checkpoint.h"
#include "io/architecture.h"
#include "io/config_settings.h"
#include "io/json_text.h"
#include "io/mapped_file.h"
#include "io/model_config.h"

namespace coda::io {

ModelConfig parse_model_config(std::string_view text, const std::string& source) {
  const nlohmann::json object = parse_json(text, source);
  const Settings settings(object, source);
  const Architecture& architecture = architecture_of(settings);
  if (settings.find("quantization_config") != nullptr) {
    throw Error(source +
                ": quantization_config is given, but quantized weights are not supported (convert "
                "the checkpoint to F32, BF16 or F16)");
  }
  ModelConfig config = architecture.read(settings);
  check_model_config(config, source);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  return parse_model_config(read_file(file), printable(file));
}

}  // namespace coda::io
