// SPDX-License-Identifier: Apache-2.0
// A language model compiled for one batch size and run by a backend: token ids in; losses, logits
// or gradients out. Also evaluates the loss on a text and generates text. The caller owns the
// weights and may change them between runs.
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
  gradients,  // the mean loss and its gradient with respect to every parameter
  losses,     // the loss of every position
  logits,     // the logits of every position
};

struct ModelRunnerOptions {
  ModelTask task = ModelTask::losses;
  DType storage = DType::f32;  // of weight matrices and activations
  int64_t batch = 1;           // sequences
  int64_t sequence = 1;        // tokens of each
  int64_t rope_length = 0;     // ModelOptions::length; 0: `sequence`
  bool accumulate = false;     // add to the gradients that are already there
  bool fuse = true;            // false: the unfused plan, for comparison
  bool timing = false;         // measure each plan step
  // ModelTask::gradients: rows of logits that are computed and consumed at once; 0: all of them.
  int64_t loss_rows = kAutomaticLossRows;
  double expert_capacity = 0;  // above 0: sparse experts, see expert_rows_of()
};

// A model's graph with the request of a task, ready for compile().
struct ModelTaskGraph {
  std::unique_ptr<ModelGraph> model;
  CompileRequest request;
  CompileOptions options;
};
// Throws Error if there are too many tokens in total, or more in a sequence than the model allows.
void check_sizes(const ModelConfig& config, int64_t batch, int64_t sequence);
ModelTaskGraph make_task(const ModelConfig& config, const ModelRunnerOptions& options,
                         const Rates& rates);

class ModelRunner {
 public:
  ModelRunner(const ModelConfig& config, const ModelRunnerOptions& options, Backend& backend)
      : ModelRunner(make_task(config, options, backend.rates()), options, backend) {}
  // `task`: made from the same options; its compiler options may differ.
  ModelRunner(ModelTaskGraph task, const ModelRunnerOptions& options, Backend& backend);

  const ModelGraph& model() const { return *task_.model; }
  const ModelRunnerOptions& options() const { return options_; }
  // Binds the weights by name in the backend's memory: tensors_of(weights, backend), which on the
  // host is the memory of the weights themselves, or a trainer's parameters(). They must outlive
  // the runs.
  void bind(const TensorMap& weights);

  // Replaces the values of the model's tables by those of the same model with another
  // ModelOptions::length.
  void set_tables(const std::vector<ModelTable>& tables);

  // `ids` and `targets` have batch * sequence elements; targets of kIgnoredTarget do not count.
  void forward(std::span<const int32_t> ids, std::span<const int32_t> targets);
  // Computes the gradients of scale * loss of the last forward.
  void backward(float scale);

  float loss() const;                                 // ModelTask::gradients
  std::vector<float> row_losses() const;              // ModelTask::losses
  std::vector<float> logits(int64_t position) const;  // ModelTask::logits
  // How often a token of the last forward chose an expert that was full (ModelGraph::dropped).
  int64_t dropped() const;
  // The gradient of a parameter, by its index in model().parameters. Unless gradients accumulate,
  // they share memory with activations and are valid from a backward() to the next forward().
  std::vector<float> gradient(size_t parameter) const;
  const Session& session() const { return *session_; }

 private:
  ModelRunnerOptions options_;
  ModelTaskGraph task_;
  Backend& backend_;
  std::unique_ptr<Session> session_;
  TensorMap tensors_;  // all tensors of the plan except weights and what the session owns
};

// A runner with weights from a Hugging Face folder, or from a run folder's newest checkpoint.
// Missing or unsuitable files are reported before the plan is compiled. Throws Error naming them.
struct LoadedModel {
  Weights weights;
  std::unique_ptr<ModelRunner> runner;
};
LoadedModel load_model(const std::filesystem::path& folder, const ModelRunnerOptions& options,
                       Backend& backend);

struct Evaluation {
  double total_loss = 0;  // nats
  int64_t predicted = 0;  // tokens
  int64_t dropped = 0;    // choices of sparse experts that were full, over all windows

  double loss() const { return total_loss / static_cast<double>(predicted); }
};

// The loss on a text, with sliding windows of the runner's sequence that start `stride` apart.
// Every token except the first is predicted exactly once, from at least sequence - stride tokens
// before it (fewer only near the start of the text). `stride` is from 1 to the sequence. The runner
// must have ModelTask::losses. `progress` gets the number of tokens predicted so far; the
// evaluation stops when it returns false. Throws Error for an invalid stride and for fewer than two
// tokens.
Evaluation evaluate(ModelRunner& runner, const Tokens& tokens, int64_t stride,
                    const std::function<bool(int64_t)>& progress = {});

// The weights from a Hugging Face folder or a run folder, for a model with that storage type.
Weights load_model_weights(const std::filesystem::path& folder, DType storage);

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // sample only from the k likeliest tokens; 0: from all
  double top_p = 1;  // and only from the likeliest tokens that together have this probability
  uint64_t seed = 1;
};

// Generates text: calls `on_token` for each of `count` new tokens, until it returns false. The
// runner must have ModelTask::logits and batch 1. If the text is longer than the runner's
// `sequence`, the model sees only its end: whenever the context is full, its older half is dropped.
// Each token runs the whole context through the forward plan, which is slow but computes exactly
// what training computed. Throws Error for an empty prompt and for a token outside the vocabulary.
void generate(ModelRunner& runner, std::vector<int32_t> prompt, int64_t count,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token);

// The same with a cache of keys and values, many times faster: only the new token runs through the
// model. Its logits equal the runner's within rounding.
class TextGenerator {
 public:
  // A model with a context of at most `context` tokens, with weights as ModelRunner::bind takes
  // them. Weights and backend must outlive the generator. Throws Error if the context is longer
  // than the model allows.
  TextGenerator(const ModelConfig& config, DType storage, int64_t context, const TensorMap& weights,
                Backend& backend);
  ~TextGenerator();

  void generate(std::vector<int32_t> prompt, int64_t count, const SamplingOptions& options,
                const std::function<bool(int32_t)>& on_token);
  // The logits of the token after `tokens`. Only the last `context` tokens or fewer count.
  std::vector<float> next_logits(std::span<const int32_t> tokens);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
