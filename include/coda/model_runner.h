// SPDX-License-Identifier: Apache-2.0
// A language model compiled for one size of batch and run by a backend: token ids in, losses,
// logits or gradients out; its loss on a text, and text that it writes. The weights are the
// caller's and may change between runs.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile.h"
#include "coda/models.h"
#include "coda/session.h"
#include "coda/text_data.h"
#include "coda/weights.h"

namespace CODA_API coda {

enum class ModelTask : uint8_t {
  gradients,  // the mean loss, and its gradient to every parameter
  losses,     // the loss of every position
  logits,     // the logits of every position
};

struct ModelRunnerOptions {
  ModelTask task = ModelTask::losses;
  DType storage = DType::f32;  // of weight matrices and activations
  int64_t batch = 1;           // sequences
  int64_t sequence = 1;        // tokens of each
  int64_t rope_length = 0;     // ModelOptions::length; 0: `sequence`
  bool accumulate = false;     // gradients are added to what is there
  bool fuse = true;            // false: the unfused plan, to compare with
  bool timing = false;         // measure each step
  // ModelTask::gradients: rows of the logits that are made and consumed at once; 0: all of them.
  int64_t loss_rows = kAutomaticChunkRows;
  double expert_capacity = 0;  // above 0: experts are sparse, see expert_rows_of()
};

// A model's graph with what a task asks of it; compile() takes the two.
struct ModelTaskGraph {
  std::unique_ptr<ModelGraph> model;
  CompileRequest request;
  CompileOptions options;
};
// Throws Error if there are too many tokens at once, or more than the model allows in a sequence.
void check_sizes(const ModelConfig& config, int64_t batch, int64_t sequence);
ModelTaskGraph make_task(const ModelConfig& config, const ModelRunnerOptions& options,
                         const Rates& rates);

class ModelRunner {
 public:
  ModelRunner(const ModelConfig& config, const ModelRunnerOptions& options, Backend& backend)
      : ModelRunner(make_task(config, options, backend.rates()), options, backend) {}
  // The task of the same options, whose compiler options may have been changed.
  ModelRunner(ModelTaskGraph task, const ModelRunnerOptions& options, Backend& backend);

  const ModelGraph& model() const { return *task_.model; }
  const ModelRunnerOptions& options() const { return options_; }
  // The weights by name where the backend has them: tensors_of(weights, backend), which on the host
  // is the weights' own memory, or a trainer's parameters(). They must outlive the runs.
  void bind(const TensorMap& weights);

  // Other values of the model's tables: those of the same model with another ModelOptions::length.
  void set_tables(const std::vector<ModelTable>& tables);

  // Ids and targets of batch * sequence positions; kIgnoredTarget: the position does not count.
  void forward(std::span<const int32_t> ids, std::span<const int32_t> targets);
  // Gradients of scale * loss of the last forward.
  void backward(float scale);

  float loss() const;                                 // ModelTask::gradients
  std::vector<float> row_losses() const;              // ModelTask::losses
  std::vector<float> logits(int64_t position) const;  // ModelTask::logits
  // How often a token of the last forward chose an expert without room (ModelGraph::dropped).
  int64_t dropped() const;
  // Of a parameter, by its place in model().parameters. Those that are not added to share memory
  // with activations: they hold from a backward() to the next forward().
  std::vector<float> gradient(size_t parameter) const;
  const Session& session() const { return *session_; }

 private:
  ModelRunnerOptions options_;
  ModelTaskGraph task_;
  Backend& backend_;
  std::unique_ptr<Session> session_;
  TensorMap tensors_;  // of the plan's, all but weights and what the session owns
};

// A runner with the weights of a Hugging Face folder, or of a run's: then of its newest checkpoint.
// What is missing or does not fit is found before a plan is made. Throws Error naming it.
struct LoadedModel {
  Weights weights;
  std::unique_ptr<ModelRunner> runner;
};
LoadedModel load_model(const std::filesystem::path& folder, const ModelRunnerOptions& options,
                       Backend& backend);

struct Evaluation {
  double total_loss = 0;  // nats
  int64_t predicted = 0;  // tokens
  int64_t dropped = 0;    // choices of sparse experts without room, of all windows

  double loss() const { return total_loss / static_cast<double>(predicted); }
};

// The loss on a text. Every token but the first is predicted exactly once, from at least sequence -
// stride tokens before it (fewer only near the start of the text): windows of the runner's sequence
// start `stride` apart, from 1 to the sequence. The runner has ModelTask::losses. `progress` is
// told how many tokens are predicted so far; when it returns false, the evaluation stops there.
// Throws Error for another stride and for fewer than two tokens.
Evaluation evaluate(ModelRunner& runner, const Tokens& tokens, int64_t stride,
                    const std::function<bool(int64_t)>& progress = {});

// The weights of a Hugging Face folder, or of a run's, as a model of that storage has them.
Weights load_model_weights(const std::filesystem::path& folder, DType storage);

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // only among the k likeliest; 0: among all
  double top_p = 1;          // and of these among the likeliest that have this share together
  uint64_t seed = 1;
};

// Text, a token at a time: calls `on_token` for each of `count` new tokens; when it returns false,
// no more are made. The runner has ModelTask::logits and a batch of 1. Of a text that is longer
// than its `sequence` the model sees the end: when it is full, its older half is left out. Each
// token runs the whole context through the forward plan: simple, and exactly what training
// computed. Throws Error for an empty prompt, and for a token that is not of the vocabulary.
void generate(ModelRunner& runner, std::vector<int32_t> prompt, int64_t count,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token);

// The same, many times faster: keys and values of the tokens so far are kept, and a token runs
// through the model alone. Its logits are those of the runner's within rounding.
class TextGenerator {
 public:
  // A model that sees at most `context` tokens, with weights as ModelRunner::bind takes them; they
  // and the backend must outlive it. Throws Error for a context that is longer than the model
  // allows.
  TextGenerator(const ModelConfig& config, DType storage, int64_t context, const TensorMap& weights,
                Backend& backend);
  ~TextGenerator();

  void generate(std::vector<int32_t> prompt, int64_t count, const SamplingOptions& options,
                const std::function<bool(int32_t)>& on_token);
  // The logits of the token behind `tokens`, of which the last `context` or fewer count.
  std::vector<float> next_logits(std::span<const int32_t> tokens);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
