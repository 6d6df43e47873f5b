// SPDX-License-Identifier: Apache-2.0
// Runs a training from its first step, or from a checkpoint, to its end.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "coda/backend.h"
#include "coda/communicator.h"
#include "coda/model_trainer.h"
#include "coda/run.h"
#include "coda/text_data.h"
#include "text_tokens.h"

namespace coda::tools {

struct RunPlan {
  ModelTrainSettings settings;
  ModelStep step;  // compiled for the settings; the trainer takes it
  TokenSplit data;
  bool is_text = false;
  TextTokens text;  // how to read and print text
  std::filesystem::path out;
  std::filesystem::path init;  // a model folder whose weights to start from; may be empty
  std::optional<std::filesystem::path> resumed;  // the checkpoint to resume
  bool overwrite = false;                        // remove the run in `out`
  RunState state;                                // options and losses so far
  std::string go_on_with;                        // the command line that resumes it
  int64_t save_every = 0;
  int64_t eval_every = 0;
  int64_t sample_tokens = 0;
  std::string prompt;
  ModelFiles files;  // copied into checkpoints
  std::shared_ptr<Backend> backend;
  Communicator* communicator = nullptr;  // null: a single process
  std::filesystem::path profile;         // where to write a step's trace; empty: nowhere
  bool report = false;                   // compare with xz and with the unfused plan
};

// Returns the exit status: 0, or 130 if it was asked to stop (stop_request.h). If it throws Error,
// earlier checkpoints remain.
int run_training(RunPlan plan);

}  // namespace coda::tools
