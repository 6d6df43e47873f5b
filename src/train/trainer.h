// SPDX-License-Identifier: Apache-2.0
// Training, a step at a time: gradients of a batch (in several passes where it is large), clipping,
// AdamW on fp32 weights. After n steps the state is a function of settings, data and n only; so
// whoever saves it and goes on later gets bitwise what an uninterrupted run gets.
#pragma once

#include <memory>
#include <vector>

#include "io/text_data.h"
#include "train/adamw.h"
#include "train/model_runner.h"
#include "train/schedule.h"

namespace coda::train {

struct TrainSettings {
  ModelConfig model;
  DType storage = DType::f32;
  int64_t batch = 8;       // sequences of a pass
  int64_t accumulate = 1;  // passes of a step
  int64_t sequence = 256;
  int64_t loss_rows = kAutomaticBlockRows;  // of the logits at once; 0: all
  uint64_t seed = 1;                        // of initial weights and of samples
  Schedule schedule;
  AdamWOptions adamw;
  double clip = 1;  // largest norm of a step's gradients; 0: no clipping

  int64_t tokens_of_step() const { return batch * accumulate * sequence; }
};

// What the optimizer knows of a parameter beside its value.
struct Moments {
  std::vector<float> m;
  std::vector<float> v;
};

struct StepReport {
  double loss = 0;  // mean over the step's passes, before the update
  double norm = 0;  // of the gradients, before clipping
  double rate = 0;
};

class Trainer {
 public:
  // Starts at step 0 with initial weights. `tokens` must outlive the trainer.
  Trainer(const TrainSettings& settings, const io::Tokens& tokens, Backend& backend);

  // One step. Throws Error, naming the step and leaving the state as it was, if loss or gradients
  // are not finite.
  StepReport step();

  // Throws Error, naming the step, unless the weights and the loss that they give on the next
  // step's first batch are finite. A state is worth keeping only if it passes: an update of finite
  // gradients may end in weights from which no run can go on.
  void require_sound();

  // Steps done. Who restores a saved state sets it with weights and moments, then calls restored().
  int64_t step_count = 0;
  Weights weights;
  std::vector<Moments> moments;  // as weights
  void restored();

  const ModelGraph& model() const { return runner_.model(); }
  const Session& session() const { return runner_.session(); }

 private:
  TrainSettings settings_;
  const io::Tokens& tokens_;
  ModelRunner runner_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> targets_;
};

}  // namespace coda::train
