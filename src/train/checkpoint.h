// SPDX-License-Identifier: Apache-2.0
// Stores and restores checkpoints as arrays of a trainer's state; coda/run.h describes the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coda/model_config.h"
#include "coda/run.h"

namespace coda {

// One parameter and its optimizer states. model.safetensors has `bf16` if it is not empty, else
// `weights`. optimizer.safetensors has "<state>.<name>" ("m.lm_head.weight") for each state. If
// there are both `bf16` and `weights`, it also has the latter as "master.<name>".
struct CheckpointTensor {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
  std::span<float> weights;  // fp32; empty if there is only `bf16`
  // By the name of the state in the optimizer.
  std::vector<std::pair<std::string, std::span<float>>> states;
  std::span<uint16_t> bf16;  // the copy that the model computes with; empty in fp32 runs
};

// Saves the checkpoint of state.step (`files`: see coda/run.h), points `latest` to it, and removes
// all but the newest `keep`. An existing checkpoint of the same step is replaced by exchanging
// names. Returns the folder. If it throws Error (a full disk), all earlier checkpoints remain.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder,
                                      const std::optional<ModelConfig>& config,
                                      std::span<const CheckpointTensor> tensors,
                                      const RunState& state, const ModelFiles& files = {},
                                      int keep = 2);

// Fills the arrays of all tensors with exactly the saved bits. Throws Error if the checkpoint has
// other tensors, shapes or types (another model, or another --dtype).
void load_tensors(const std::filesystem::path& checkpoint,
                  std::span<const CheckpointTensor> tensors);

}  // namespace coda
