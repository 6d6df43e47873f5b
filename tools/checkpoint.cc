// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "io/model_config.h"
#include "train/checkpoint.h"

namespace coda::tools {

Checkpoint open_checkpoint(const std::filesystem::path& folder) {
  const std::filesystem::path found = train::find_model_folder(folder);
  return {io::read_model_config(found), io::open_model_weights(found)};
}

LoadedModel load_model(const Checkpoint& checkpoint, const train::RunnerOptions& options,
                       Backend& backend) {
  LoadedModel loaded;
  loaded.runner = std::make_unique<train::ModelRunner>(checkpoint.config, options, backend);
  loaded.weights = train::load_weights(loaded.runner->model(), checkpoint.stored);
  loaded.runner->bind(loaded.weights);
  return loaded;
}

DType storage_type(const std::string& name) { return name == "bf16" ? DType::bf16 : DType::f32; }

}  // namespace coda::tools
