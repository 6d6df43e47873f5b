// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "coda/models.h"
#include "io/model_config.h"
#include "train/checkpoint.h"
#include "train/stored_weights.h"

namespace coda::tools {

Checkpoint open_checkpoint(const std::filesystem::path& folder) {
  const std::filesystem::path found = train::find_model_folder(folder);
  return {io::read_model_config(found), io::open_model_weights(found)};
}

LoadedModel load_model(const Checkpoint& checkpoint, const ModelRunnerOptions& options,
                       Backend& backend) {
  LoadedModel loaded;
  require_stored(checkpoint.config, checkpoint.stored);
  // Before a plan is made, which may take long: weights that are missing or do not fit are found.
  const auto model = build_model(checkpoint.config, {.storage = options.storage, .positions = 1});
  loaded.weights = load_weights(*model, checkpoint.stored);
  loaded.runner = std::make_unique<ModelRunner>(checkpoint.config, options, backend);
  loaded.runner->bind(loaded.weights);
  return loaded;
}

DType storage_type(const std::string& name) { return name == "bf16" ? DType::bf16 : DType::f32; }

}  // namespace coda::tools
