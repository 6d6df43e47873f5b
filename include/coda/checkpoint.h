// SPDX-License-Identifier: Apache-2.0
// Saves a Trainer's state to disk, so that a run that is killed at any moment resumes with bitwise
// the same results from its last checkpoint. Also saves and loads known models in Hugging Face's
// layout. (To store only weights in a file, use save_weights.)
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/models.h"
#include "coda/trainer.h"
#include "coda/weights.h"

namespace CODA_API coda {

// Writes run_folder/step-000120 (model.safetensors, optimizer.safetensors, run_state.json)
// atomically, points the link `latest` to it, and removes all but the newest `keep` checkpoints.
// Returns the path. Throws Error (for example if the disk is full) and then leaves all earlier
// checkpoints in place.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer,
                                      int keep = 2);
// Restores step count, weights and optimizer states from the newest checkpoint. Returns false if
// there is no checkpoint or no such folder. Throws Error if the checkpoint has other weights.
bool load_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer);

// Writes config.json and model.safetensors, which transformers can load. Weights are stored in the
// type that the model computes with (bf16 where there are bf16 copies). Creates the folder if it is
// missing.
void save_model(const std::filesystem::path& folder, const ModelConfig& config,
                const Weights& weights);
// Reads config.json; load_weights reads the weights. Throws Error naming what is not supported.
ModelConfig load_model_config(const std::filesystem::path& folder);

// Warnings about a model folder, one line each: unknown settings in config.json, an untied head
// although config.json says tied, tensors that the model does not use. Throws Error as
// load_model_config does, and for weights that cannot be read.
std::vector<std::string> model_notes(const std::filesystem::path& folder);
// Further warnings for training: dropout rates, because this library trains without dropout.
std::vector<std::string> training_notes(const std::filesystem::path& folder);

// Throws Error, starting with `source`, unless the sizes are positive and consistent. Reading and
// writing a config.json calls this; code that takes sizes from elsewhere must call it too.
void check_model_config(const ModelConfig& config, const std::string& source);

}  // namespace CODA_API coda
