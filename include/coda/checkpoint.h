// SPDX-License-Identifier: Apache-2.0
// A Trainer's state on disk, so that a run that is killed at any moment goes on bitwise from its
// last checkpoint; and folders of known models as Hugging Face has them. (Weights alone are a file:
// save_weights.)
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/models.h"
#include "coda/trainer.h"
#include "coda/weights.h"

namespace CODA_API coda {

// Writes run_folder/step-000120 (model.safetensors, optimizer.safetensors, run_state.json) whole or
// not at all, points the link `latest` to it, and removes all but the newest `keep`. Returns its
// path. Throws Error (a full disk); then all earlier ones stand.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer,
                                      int keep = 2);
// Sets the trainer's steps, weights and moments to the newest checkpoint's. false: there is none,
// or no such folder. Throws Error if it is of other weights.
bool load_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer);

// config.json and model.safetensors, which transformers loads; weights are stored as the model
// computes with them (bf16 where they have such copies). The folder is made if it is missing.
void save_model(const std::filesystem::path& folder, const ModelConfig& config,
                const Weights& weights);
// What config.json says. Its weights: load_weights. Throws Error naming what is not supported.
ModelConfig load_model_config(const std::filesystem::path& folder);

// What who computes with the model of a folder should know, one line each: settings of its
// config.json that nobody knows, a head that is not tied although config.json says so, tensors that
// the model leaves out. Throws Error as load_model_config does, or for weights that cannot be read.
std::vector<std::string> model_notes(const std::filesystem::path& folder);
// The same for who trains it: rates of dropout, which training here does not have.
std::vector<std::string> training_notes(const std::filesystem::path& folder);

// Throws Error, starting with `source`, unless sizes are positive and fit one another. Reading and
// writing a config.json call it; so does whoever takes sizes from elsewhere.
void check_model_config(const ModelConfig& config, const std::string& source);

}  // namespace CODA_API coda
