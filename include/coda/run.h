// SPDX-License-Identifier: Apache-2.0
// The folder of a training run. It holds checkpoints such that the last complete one survives a
// crash at any moment:
//
//     step-000120/  a complete Hugging Face checkpoint (config.json, model.safetensors) that
//                   transformers can load, with optimizer.safetensors and run_state.json beside
//                   them; without config.json if the graph is not a known model
//     step-000100/  the previous one; older ones are removed
//     latest        a symbolic link to the newest, for people and transformers; this library
//                   does not depend on it
//
// A checkpoint is written into step-000120.tmp, each file is synced, and one rename gives the
// folder its final name. So a folder with a final name is complete. Anything named *.tmp is left
// over from a crash: it is never read, and it is removed at the start of a run and at the next
// save.
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

// The other files of a Hugging Face folder. A run that starts from such a folder copies them into
// its checkpoints, so that a fine-tuned model keeps its tokenizer.
struct ModelFiles {
  std::string config;                         // text of config.json; empty: none
  std::map<std::string, std::string> others;  // tokenizer, generation config, chat template
};
// Reads these files from a model's or checkpoint's folder and ignores other files. Throws Error for
// a file that cannot be read or is larger than 256 MiB.
ModelFiles model_files_of(const std::filesystem::path& folder);

// As save_checkpoint of coda/checkpoint.h, for a known model, with the state of its run; state.step
// must be the trainer's. config.json is that of `files` with the type of the weights updated;
// without one it is written from `config`.
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

// Removes files of an interrupted write. The caller must hold a RunLock.
void remove_debris(const std::filesystem::path& run_folder);

// The complete checkpoint with the most steps; none if there is no checkpoint or no such folder.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_folder);

// Finds the folder with a model, given a Hugging Face folder, a checkpoint or a run folder: the
// folder itself if it has a config.json, else its newest checkpoint. Throws Error if it has
// neither.
std::filesystem::path find_model_folder(const std::filesystem::path& folder);

// Throws Error if the file is damaged or its step differs from the one in the folder's name.
RunState load_run_state(const std::filesystem::path& checkpoint);

// Sets the trainer to exactly the saved state and returns the state of the run. Throws Error if the
// checkpoint has another optimizer, or other weights, shapes or types (another model, or another
// --dtype).
RunState restore(const std::filesystem::path& checkpoint, Trainer& trainer);

// Throws Error unless the folder has all weights of the model with the right shapes. Allocates
// nothing by the sizes in config.json, which may be larger than any file.
void require_weights(const std::filesystem::path& model_folder, const ModelConfig& config);

// Ensures that only one run at a time uses a run folder. It is a kernel lock on the folder itself,
// so a killed run leaves nothing behind.
class RunLock {
 public:
  // Creates the folder if it is missing. Throws Error if another process or RunLock holds the lock.
  // On file systems without folder locks there is no protection.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace CODA_API coda
