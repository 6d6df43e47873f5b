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

struct ModelTrainSettings {
  ModelConfig model;
  DType storage = DType::f32;
  EightBits eight_bits = EightBits::none;
  std::vector<std::string> eight_bits_except = {};  // see CompileOptions
  int64_t batch = 8;                                // sequences of a microbatch, over all processes
  int64_t accumulate = 1;                           // microbatches of a training step
  int64_t sequence = 256;
  Objective objective = Objective::memory;  // what to minimise when a value can be recomputed
  int layers_run_again = 0;                 // see CompileOptions
  int64_t loss_rows = kAutomaticChunkRows;  // rows of logits at once; 0: all
  double expert_capacity = 0;               // above 0: sparse experts, see expert_rows_of()
  uint64_t seed = 1;                        // of initial weights and of samples
  LearningSchedule schedule;
  Optimizer optimizer = make_optimizer("adamw");
  double clip = 1;      // largest norm of a step's gradients; 0: no clipping
  bool timing = false;  // of each plan step: see SessionOptions
  // See TrainOptions. The data of a training step are the same for any number of processes.
  Communicator* communicator = nullptr;
  int64_t exchange_bytes = 0;
  int64_t memory_limit = 0;  // bytes; 0: what the backend has free

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
  TrainOptions options;
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
