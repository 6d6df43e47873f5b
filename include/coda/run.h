// SPDX-License-Identifier: Apache-2.0
// The folder of a training run: its checkpoints, of which the last good one survives a crash at any
// moment. In the run's folder:
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
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/loss_curve.h"
#include "coda/model_config.h"
#include "coda/trainer.h"

namespace CODA_API coda {

// What a run must store, besides weights and optimizer states, to resume as if it had never
// stopped. A checkpoint stores it as run_state.json; numbers are stored exactly.
struct RunState {
  int64_t step = 0;  // steps done; with `seed` it says which data comes next
  uint64_t seed = 0;
  std::map<std::string, std::string> options;  // the options that the run was started with, by name
  std::string optimizer = "adamw";      // the name of the optimizer whose states the checkpoint has
  std::vector<float> eight_bit_scales;  // Trainer::eight_bit_scales
  std::vector<LossPoint> train_losses;
  std::vector<LossPoint> held_out_losses;

  friend bool operator==(const RunState&, const RunState&) = default;
};

// What Hugging Face keeps beside a model's weights, and what a run that starts from such a folder
// hands on to its checkpoints: else a tuned model would lose its tokenizer.
struct ModelFiles {
  std::string config;                         // config.json's text; empty: none
  std::map<std::string, std::string> others;  // tokenizer, generation config, chat template: bytes
};
// Of a model's or a checkpoint's folder; what has another name is left there. Throws Error for a
// file that cannot be read, or is larger than 256 MiB.
ModelFiles model_files_of(const std::filesystem::path& folder);

// As save_checkpoint of coda/checkpoint.h, of a known model and with the state of its run;
// state.step is the trainer's. config.json is that of `files` but for the type of the weights; if
// there is none, it says what `config` does.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder,
                                      const ModelConfig& config, Trainer& trainer,
                                      const RunState& state, const ModelFiles& files = {},
                                      int keep = 2);

// The same in two parts. This call starts fetching the state. A call of the returned function, from
// any thread, waits for the fetch and writes the checkpoint. Until then the trainer must not be
// moved and its fields must not change. If Trainer::fetches_copies(), training steps leave the
// fields alone, so that training goes on while the checkpoint is copied and written. Saving
// allocates states that are empty. The returned function throws Error, and writes nothing, if a
// weight is not finite.
std::function<std::filesystem::path()> checkpoint_writer(const std::filesystem::path& run_folder,
                                                         const ModelConfig& config,
                                                         Trainer& trainer, const RunState& state,
                                                         const ModelFiles& files = {},
                                                         int keep = 2);

// Removes what a write that was killed has left. The caller has a RunLock.
void remove_debris(const std::filesystem::path& run_folder);

// The complete checkpoint with the most steps; nothing if there is none (or no such folder).
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_folder);

// The folder to read a model from, given any of a Hugging Face folder, a checkpoint's or a run's:
// itself if it has a config.json, else its newest checkpoint. Throws Error if it has neither.
std::filesystem::path find_model_folder(const std::filesystem::path& folder);

// Throws Error if it is damaged or of another step than the folder's name says.
RunState load_run_state(const std::filesystem::path& checkpoint);

// Sets the trainer to exactly the saved state and returns the state of the run. Throws Error if the
// checkpoint has another optimizer, or other weights, shapes or types (another model, or another
// --dtype).
RunState restore(const std::filesystem::path& checkpoint, Trainer& trainer);

// Throws Error unless all weights of the model are in the folder in their shapes. Nothing is made
// in the model's sizes: those are a config.json's, which may ask for more than any file holds.
void require_weights(const std::filesystem::path& model_folder, const ModelConfig& config);

// One run at a time in a run's folder. The lock is the kernel's, on the folder itself: nothing is
// left behind by a run that is killed.
class RunLock {
 public:
  // Makes the folder if it is missing. Error if another process, or another RunLock, holds it. File
  // systems that cannot lock a folder go without.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace CODA_API coda
