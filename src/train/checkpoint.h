// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run, of which the last good one survives a crash at any moment. In the run's
// folder:
//
//   step-000120/  a complete Hugging Face checkpoint (config.json, model.safetensors), which
//   transformers loads as it is,
//                 with optimizer.safetensors and run_state.json beside them; of a graph that is no
//                 known model there is no config.json
//   step-000100/  the one before it; older ones are removed
//   latest        a symbolic link to the newest, for people and for transformers; nothing here
//   depends on it
//
// A checkpoint is written into step-000120.tmp, each file synced, and gets its name by one rename:
// what has the name is complete. Anything named *.tmp is debris of a crash, is never read, and is
// removed when a run starts and at the next save.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coda/model_config.h"
#include "train/run_state.h"

namespace coda::train {

// One parameter and its optimizer's state. model.safetensors has `bf16` if that is not empty, else
// `weights`; optimizer.safetensors has "m.<name>", "v.<name>" and, beside bf16 weights,
// "master.<name>".
struct CheckpointTensor {
  std::string name;  // Hugging Face's
  std::vector<int64_t> shape;
  std::span<float> weights;  // fp32 master
  std::span<float> m;
  std::span<float> v;
  std::span<uint16_t> bf16;  // the copy that the model computes with; empty in fp32 runs
};

// Saves the checkpoint of state.step, points `latest` to it and removes all but the newest `keep`.
// If the step has one already it is replaced, by an exchange of names. Returns its folder. After an
// Error (a full disk) all earlier ones stand.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder,
                                      const std::optional<ModelConfig>& config,
                                      std::span<const CheckpointTensor> tensors,
                                      const RunState& state, int keep = 2);

// Removes what a write that was killed has left. The caller has the folder to itself (run_lock.h).
void remove_debris(const std::filesystem::path& run_folder);

// The complete checkpoint with the most steps; nothing if there is none (or no such folder).
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_folder);

// The folder to read a model from, given any of a Hugging Face folder, a checkpoint's or a run's:
// itself if it has a config.json, else its newest checkpoint. Throws Error if it has neither.
std::filesystem::path find_model_folder(const std::filesystem::path& folder);

// Throws Error if it is damaged or of another step than the folder's name says.
RunState load_run_state(const std::filesystem::path& checkpoint);

// Fills the arrays of all tensors, to the bit what was saved. Throws Error if the checkpoint has
// other tensors, shapes or types (another model, or another --dtype).
void load_tensors(const std::filesystem::path& checkpoint,
                  std::span<const CheckpointTensor> tensors);

}  // namespace coda::train
