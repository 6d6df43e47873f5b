// SPDX-License-Identifier: Apache-2.0
// A checkpoint opened for evaluation or sampling.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "coda/backend.h"
#include "coda/dtype.h"
#include "coda/model_config.h"
#include "coda/model_runner.h"
#include "io/safetensors.h"

namespace coda::tools {

struct Checkpoint {
  ModelConfig config;
  io::StoredTensors stored;
};
// A Hugging Face folder, or a run's: then its newest checkpoint.
Checkpoint open_checkpoint(const std::filesystem::path& folder);

// A runner of the checkpoint's model, with its weights.
struct LoadedModel {
  Weights weights;
  std::unique_ptr<ModelRunner> runner;
};
LoadedModel load_model(const Checkpoint& checkpoint, const ModelRunnerOptions& options,
                       Backend& backend);

// "fp32" or "bf16"; checked by the command line.
DType storage_type(const std::string& name);

}  // namespace coda::tools
