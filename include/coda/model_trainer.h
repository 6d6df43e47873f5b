// SPDX-License-Identifier: Apache-2.0
// Trains a language model on a text: a Trainer of the model's graph that samples its own batches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/text_data.h"
#include "coda/trainer.h"

namespace CODA_API coda {

// A Trainer's options, of which the ModelTrainer sets `sizes` and `outputs`, and what is of a model
// and its text. A step's data are the same for any number of processes.
struct ModelTrainSettings : TrainOptions {
  ModelConfig model;
  int64_t batch = 8;           // sequences of a microbatch, over all processes
  int64_t sequence = 256;      // tokens
  double expert_capacity = 0;  // above 0: sparse experts, see expert_rows_of()
  uint64_t seed = 1;           // of initial weights and of samples

  int64_t tokens_of_step() const { return batch * accumulate * sequence; }
  // Sequences of one process in a microbatch. Throws Error unless all processes get the same
  // number.
  int64_t own_batch() const;
};

// A compiled training step. Its memory is known before a trainer runs it (fitting_step of
// coda/step_memory.h).
struct ModelStep {
  ModelTrainSettings settings;
  std::unique_ptr<ModelGraph> model;
  Compiled compiled;
  std::optional<int64_t> workspace = {};  // Backend::workspace_bytes, if known
};
ModelStep compile_step(const ModelTrainSettings& settings, const Rates& rates);

class ModelTrainer : public Trainer {
 public:
  // Starts at step 0 with initial weights. `tokens` must outlive the trainer.
  ModelTrainer(const ModelTrainSettings& settings, const Tokens& tokens, Backend& backend);
  // The same with a training step that was compiled with the backend's rates.
  ModelTrainer(ModelStep step, const Tokens& tokens, Backend& backend);

  // As Trainer's, with the training step's own batch.
  StepReport step();
  void start_step();
  Profiled profile();
  // As Trainer's, with the first batch of the next training step.
  void require_sound();
  void require_sound_loss();

  // How often a token of this process chose an expert that was full (ModelGraph::dropped), in the
  // last microbatch. Must not be called while a training step is started.
  int64_t dropped() const;

  const ModelGraph& model() const { return *model_; }

 private:
  const TensorMap& batch(int64_t pass);

  ModelTrainSettings settings_;
  const Tokens& tokens_;
  std::unique_ptr<ModelGraph> model_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> targets_;
  TensorMap batch_;  // views of the ids and targets
};

}  // namespace CODA_API coda
