// SPDX-License-Identifier: Apache-2.0
#include "coda/model_runner.h"
#include "io/model_config.h"
#include "train/checkpoint.h"
#include "train/stored_weights.h"

namespace coda {

Weights load_model_weights(const std::filesystem::path& folder, DType storage) {
  const std::filesystem::path found = find_model_folder(folder);
  const ModelConfig config = io::read_model_config(found);
  const io::StoredTensors stored = io::open_model_weights(found);
  require_stored(config, stored);
  return load_weights(*build_model(config, {.storage = storage, .positions = 1}), stored);
}

LoadedModel load_model(const std::filesystem::path& folder, const ModelRunnerOptions& options,
                       Backend& backend) {
  const ModelConfig config = io::read_model_config(find_model_folder(folder));
  LoadedModel loaded;
  loaded.weights = load_model_weights(folder, options.storage);
  loaded.runner = std::make_unique<ModelRunner>(config, options, backend);
  loaded.runner->bind(tensors_of(loaded.weights, backend));
  return loaded;
}

}  // namespace coda
