// SPDX-License-Identifier: Apache-2.0
// Compiles the task's plan and binds a batch's ids, targets and positions.
#include "coda/model_runner.h"

#include <algorithm>

#include "coda/error.h"
#include "train/gradient_session.h"
#include "train/train_options.h"

namespace coda {
void check_sizes(const ModelConfig& config, int64_t batch, int64_t sequence) {
  // Rows of the largest tensors are indexed with 31 bits.
  require(batch <= INT32_MAX / sequence,
          std::to_string(batch) + " sequences of " + std::to_string(sequence) +
              " tokens are more than 2^31 tokens at once: choose a smaller --batch");
  const int64_t longest = longest_sequence_of(config);
  require(sequence <= longest, "sequences of " + std::to_string(sequence) +
                                   " tokens are longer than the model allows (" +
                                   std::to_string(longest) + "): choose a smaller --sequence");
}

ModelTaskGraph make_task(const ModelConfig& config, const ModelRunnerOptions& options,
                         const Rates& rates) {
  check_sizes(config, options.batch, options.sequence);
  ModelTaskGraph task;
  task.model =
      build_model(config, {.storage = options.storage,
                           .positions = options.sequence,
                           .length = options.rope_length,
                           .expert_rows = expert_rows_of(config, options.expert_capacity,
                                                         options.batch * options.sequence)});
  ModelGraph& model = *task.model;
  task.options.rates = rates;
  task.options.sizes = {{"M", options.batch * options.sequence}, {"T", options.sequence}};
  task.options.storage = options.storage;
  task.options.fuse = options.fuse;
  switch (options.task) {
    case ModelTask::losses: task.request.outputs = {{"row_losses", model.row_losses}}; break;
    case ModelTask::logits: task.request.outputs = {{"logits", model.logits}}; break;
    case ModelTask::gradients:
      task.options.overwrite_saved = true;  // each forward has one backward
      task.options.loss_rows = options.loss_rows;
      task.request.outputs = {{"loss", model.loss}};
      task.request.seeds = {{model.loss, model.graph.input(kLossScale, {1, 1})}};
      for (const ModelParameter& p : model.parameters) {
        task.request.gradients.push_back(
            {p.value, gradient_name(p.name), DType::f32, options.accumulate});
      }
      break;
  }
  if (model.dropped.graph != nullptr) task.request.outputs.push_back({kDropped, model.dropped});
  return task;
}

ModelRunner::ModelRunner(ModelTaskGraph task, const ModelRunnerOptions& options, Backend& backend)
    : options_(options), task_(std::move(task)), backend_(backend) {
  Compiled compiled = compile(task_.model->graph, task_.request, task_.options);
  session_ = std::make_unique<Session>(
      std::move(compiled.plan), backend, task_.options.sizes,
      SessionOptions{.timing = options.timing,
                     .own_results = options.task == ModelTask::gradients});
  const TensorMap constants = constants_of(model(), options.batch, options.sequence);
  for (const std::string& name : session_->missing()) {
    const int input = model().graph.find_input(name);
    if (input >= 0 && model().graph.node(input).kind == InputKind::parameter) continue;
    const TensorDecl& decl = session_->plan().tensor(name).decl;
    const PhysicalShape shape = physical_shape(decl, task_.options.sizes);
    Tensor& tensor =
        tensors_.emplace(name, Tensor(decl.dtype, shape.rows, shape.cols, backend)).first->second;
    if (const auto constant = constants.find(name); constant != constants.end())
      tensor.copy_from(constant->second.view());
    session_->bind(name, tensor);
  }
}

void ModelRunner::bind(const TensorMap& weights) {
  for (const ModelParameter& p : model().parameters)
    invariant(weights.contains(p.name), "weights of another model");
  session_->bind_known(weights);
}

void ModelRunner::set_tables(const std::vector<ModelTable>& tables) {
  for (const ModelTable& table : tables)
    if (const auto found = tensors_.find(table.name); found != tensors_.end())
      found->second.set(table.values);
}

void ModelRunner::forward(std::span<const int32_t> ids, std::span<const int32_t> targets) {
  const auto set = [this](const char* name, std::span<const int32_t> values) {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) found->second.set(values);
  };
  set("ids", ids);
  set("targets", targets);
  session_->forward();
}

void ModelRunner::backward(float scale) {
  tensors_.at(kLossScale).fill(scale);
  session_->backward();
}

float ModelRunner::loss() const { return session_->tensor("loss").floats()[0]; }

std::vector<float> ModelRunner::row_losses() const {
  return session_->tensor("row_losses").floats();
}

std::vector<float> ModelRunner::logits(int64_t position) const {
  TensorView row = session_->view("logits");
  row.data = static_cast<std::byte*>(row.data) + position * row.row_stride * size_of(row.dtype);
  row.rows = 1;
  return Tensor(row, backend_).floats();
}

int64_t ModelRunner::dropped() const {
  if (model().dropped.graph == nullptr) return 0;
  return static_cast<int64_t>(session_->tensor(kDropped).floats()[0]);
}

std::vector<float> ModelRunner::gradient(size_t parameter) const {
  const ModelParameter& p = model().parameters[parameter];
  if (!has_tensor(session_->plan(), gradient_name(p.name)))
    return std::vector<float>(static_cast<size_t>(p.count()));
  return session_->tensor(gradient_name(p.name)).floats();
}

}  // namespace coda
