// SPDX-License-Identifier: Apache-2.0
// A model compiled for one size of batch and run by a backend: token ids in, losses, logits or
// gradients out. The weights are the caller's and may change between runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/compile.h"
#include "coda/models.h"
#include "coda/session.h"
#include "coda/weights.h"

namespace coda::train {

enum class Task : uint8_t {
  gradients,  // the mean loss, and its gradient to every parameter
  losses,     // the loss of every position
  logits,     // the logits of every position
};

struct RunnerOptions {
  Task task = Task::losses;
  DType storage = DType::f32;  // of weight matrices and activations
  int64_t batch = 1;           // sequences
  int64_t sequence = 1;        // tokens of each
  bool accumulate = false;     // gradients are added to what is there
  bool fuse = true;            // false: the unfused plan, to compare with
  bool timing = false;         // measure each step
  // Task::gradients: rows of the logits that are made and consumed at once; 0: all of them.
  int64_t loss_rows = kAutomaticBlockRows;
};

// A model's graph with what a task asks of it; compile() takes the two.
struct TaskGraph {
  std::unique_ptr<ModelGraph> model;
  CompileRequest request;
  CompileOptions options;
};
// Throws Error if there are too many tokens at once, or more than the model allows in a sequence.
void check_sizes(const ModelConfig& config, int64_t batch, int64_t sequence);
TaskGraph make_task(const ModelConfig& config, const RunnerOptions& options);

class ModelRunner {
 public:
  ModelRunner(const ModelConfig& config, const RunnerOptions& options, Backend& backend)
      : ModelRunner(make_task(config, options), options, backend) {}
  // The task of the same options, whose compiler options may have been changed.
  ModelRunner(TaskGraph task, const RunnerOptions& options, Backend& backend);

  const ModelGraph& model() const { return *task_.model; }
  // Weights in the order of model().parameters; they must outlive the runs.
  void bind(Weights& weights);

  // Ids and targets of batch * sequence positions; kIgnoredTarget: the position does not count.
  void forward(std::span<const int32_t> ids, std::span<const int32_t> targets);
  // Gradients of scale * loss of the last forward, into gradients().
  void backward(float scale);

  float loss() const { return loss_; }                         // Task::gradients
  std::span<const float> row_losses() const { return rows_; }  // Task::losses
  std::span<const float> logits(int64_t position) const;       // Task::logits
  // As model().parameters. Those that are not added to share memory with activations: they hold
  // from a backward() to the next forward().
  const std::vector<std::span<float>>& gradients() const { return gradients_; }
  const Session& session() const { return *session_; }

 private:
  RunnerOptions options_;
  TaskGraph task_;
  std::unique_ptr<Session> session_;
  std::vector<int32_t> ids_, targets_, positions_;
  float scale_ = 1;
  float loss_ = 0;
  std::vector<float> rows_;
  std::vector<float> logits_;
  std::vector<uint16_t> bf16_logits_;  // where the plan stores them so
  std::vector<std::span<float>> gradients_;
  std::vector<std::vector<float>> sums_;  // memory of gradients that are not the session's
};

}  // namespace coda::train
