// SPDX-License-Identifier: Apache-2.0
#include "coda/model_runner.h"

#include <algorithm>

#include "coda/error.h"
#include "coda/float16.h"
#include "train/gradient_session.h"

namespace coda {
namespace {

std::string gradient_name(const ModelParameter& parameter) { return "grad." + parameter.name; }

}  // namespace

void check_sizes(const ModelConfig& config, int64_t batch, int64_t sequence) {
  // Rows of the longest tensors are numbered with 31 bits.
  require(batch <= INT32_MAX / sequence,
          std::to_string(batch) + " sequences of " + std::to_string(sequence) +
              " tokens are more than 2^31 tokens at once: choose a smaller --batch");
  const int64_t longest = longest_sequence_of(config);
  require(sequence <= longest, "sequences of " + std::to_string(sequence) +
                                   " tokens are longer than the model allows (" +
                                   std::to_string(longest) + "): choose a smaller --sequence");
}

ModelTaskGraph make_task(const ModelConfig& config, const ModelRunnerOptions& options) {
  check_sizes(config, options.batch, options.sequence);
  ModelTaskGraph task;
  task.model = build_model(config, {.storage = options.storage, .positions = options.sequence});
  ModelGraph& model = *task.model;
  task.options.rates = cpu_rates();
  task.options.sizes = {{"M", options.batch * options.sequence}, {"T", options.sequence}};
  task.options.storage = options.storage;
  task.options.fuse = options.fuse;
  switch (options.task) {
    case ModelTask::losses: task.request.outputs = {{"row_losses", model.row_losses}}; break;
    case ModelTask::logits: task.request.outputs = {{"logits", model.logits}}; break;
    case ModelTask::gradients:
      task.options.overwrite_saved = true;  // a step is one forward and one backward
      task.options.chunk_rows = options.loss_rows;
      task.request.outputs = {{"loss", model.loss}};
      task.request.seeds = {{model.loss, model.graph.input(kLossScale, {1, 1})}};
      for (const ModelParameter& p : model.parameters) {
        task.request.gradients.push_back(
            {p.value, gradient_name(p), DType::f32, options.accumulate});
      }
      break;
  }
  return task;
}

ModelRunner::ModelRunner(ModelTaskGraph task, const ModelRunnerOptions& options, Backend& backend)
    : options_(options), task_(std::move(task)) {
  Compiled compiled = compile(task_.model->graph, task_.request, task_.options);
  session_ = std::make_unique<Session>(
      std::move(compiled.plan), backend, task_.options.sizes,
      SessionOptions{.timing = options.timing,
                     .own_results = options.task == ModelTask::gradients});
  const int64_t tokens = options.batch * options.sequence;
  ids_.resize(static_cast<size_t>(tokens));
  targets_.resize(ids_.size());
  for (int64_t i = 0; i < tokens; ++i) {
    positions_.push_back(static_cast<int32_t>(i % options.sequence));
  }
  auto bind = [&](const std::string& name, void* data, DType dtype, int64_t rows, int64_t cols) {
    if (!has_tensor(session_->plan(), name) || session_->owns(name)) return;
    session_->bind(name, dense_view(data, dtype, rows, cols));
  };
  bind("ids", ids_.data(), DType::i32, tokens, 1);
  bind("targets", targets_.data(), DType::i32, tokens, 1);
  bind("positions", positions_.data(), DType::i32, tokens, 1);
  for (ModelTable& t : task_.model->tables) {
    bind(t.name, t.values.data(), DType::f32, t.rows, t.cols);
  }
  bind(kLossScale, &scale_, DType::f32, 1, 1);
  bind("loss", &loss_, DType::f32, 1, 1);
  if (options.task == ModelTask::losses) rows_.resize(ids_.size());
  bind("row_losses", rows_.data(), DType::f32, tokens, 1);
  if (options.task == ModelTask::logits) {
    logits_.resize(ids_.size() * static_cast<size_t>(task_.model->vocabulary));
  }
  if (options.task == ModelTask::logits && options.storage == DType::bf16) {
    bf16_logits_.resize(logits_.size());
    bind("logits", bf16_logits_.data(), DType::bf16, tokens, task_.model->vocabulary);
  } else {
    bind("logits", logits_.data(), DType::f32, tokens, task_.model->vocabulary);
  }
  if (options.task != ModelTask::gradients) return;
  for (const ModelParameter& p : task_.model->parameters) {
    const std::string name = gradient_name(p);
    const auto count = static_cast<size_t>(p.count());
    if (has_tensor(session_->plan(), name) && session_->owns(name)) {
      gradients_.emplace_back(static_cast<float*>(session_->view(name).data), count);
      continue;
    }
    gradients_.emplace_back(sums_.emplace_back(count));
    bind(name, gradients_.back().data(), DType::f32, p.rows(), p.cols());
  }
}

void ModelRunner::bind(Weights& weights) {
  invariant(weights.size() == model().parameters.size(), "weights of another model");
  for (WeightTensor& w : weights) {
    if (has_tensor(session_->plan(), w.name)) session_->bind(w.name, w.view());
  }
}

void ModelRunner::forward(std::span<const int32_t> ids, std::span<const int32_t> targets) {
  invariant(ids.size() == ids_.size() && targets.size() == ids_.size(), "a batch of another size");
  std::copy(ids.begin(), ids.end(), ids_.begin());
  std::copy(targets.begin(), targets.end(), targets_.begin());
  session_->forward();
  if (options_.task == ModelTask::gradients) {
    loss_ = *static_cast<const float*>(session_->view("loss").data);
  }
  for (size_t i = 0; i < bf16_logits_.size(); ++i) logits_[i] = float_from_bf16(bf16_logits_[i]);
}

void ModelRunner::backward(float scale) {
  scale_ = scale;
  session_->backward();
}

std::span<const float> ModelRunner::logits(int64_t position) const {
  const auto width = static_cast<size_t>(model().vocabulary);
  return std::span(logits_).subspan(static_cast<size_t>(position) * width, width);
}

}  // namespace coda
