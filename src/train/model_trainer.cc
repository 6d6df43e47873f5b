// SPDX-License-Identifier: Apache-2.0
// Samples each microbatch by seed, step and row, so that a resumed run sees the same data.
#include "coda/model_trainer.h"

#include "coda/error.h"
#include "coda/model_runner.h"
#include "io/batches.h"
#include "train/compared_settings.h"
#include "train/gradient_session.h"
#include "train/train_options.h"

namespace coda {

void set_step(ModelTrainSettings& s, const ModelGraph& model) {
  s.sizes = {{"M", s.own_batch() * s.sequence}, {"T", s.sequence}};
  s.outputs.clear();
  if (model.dropped.graph != nullptr) s.outputs = {{kDropped, model.dropped}};
}

int64_t ModelTrainSettings::own_batch() const {
  const int64_t world = communicator == nullptr ? 1 : communicator->world();
  require(batch % world == 0, "a microbatch of " + std::to_string(batch) +
                                  " sequences cannot be divided among " + std::to_string(world) +
                                  " processes: choose a --batch that is a multiple");
  return batch / world;
}

std::unique_ptr<ModelGraph> model_of(const ModelTrainSettings& s) {
  check_sizes(s.model, s.own_batch(), s.sequence);
  const int64_t rows = expert_rows_of(s.model, s.expert_capacity, s.own_batch() * s.sequence);
  return build_model(s.model, {.storage = s.storage, .positions = s.sequence, .expert_rows = rows});
}

ModelStep compile_step(const ModelTrainSettings& settings, const Rates& rates) {
  ModelStep step{settings, model_of(settings), {}, {}};
  set_step(step.settings, *step.model);
  std::vector<std::string> parameters;
  for (const ModelParameter& p : step.model->parameters) parameters.push_back(p.name);
  step.compiled =
      compile_step(step.model->graph, step.model->loss, parameters, step.settings, rates);
  return step;
}

ModelTrainer::ModelTrainer(const ModelTrainSettings& settings, const Tokens& tokens,
                           Backend& backend)
    : ModelTrainer(compile_step(settings, backend.rates()), tokens, backend) {}

ModelTrainer::ModelTrainer(ModelStep step, const Tokens& tokens, Backend& backend)
    : Trainer(step.model->graph, step.model->loss, initial_weights(*step.model, step.settings.seed),
              backend, step.settings, std::move(step.compiled), step.workspace),
      settings_(std::move(step.settings)),
      tokens_(tokens),
      model_(std::move(step.model)),
      ids_(static_cast<size_t>(settings_.own_batch() * settings_.sequence)),
      targets_(ids_.size()) {
  if (settings_.communicator != nullptr)
    settings_.communicator->require_same(compared_settings(settings_, tokens_));
  const auto column = [](std::vector<int32_t>& values) {
    return Tensor(dense_view(values.data(), DType::i32, std::ssize(values), 1));
  };
  batch_ = {{"ids", column(ids_)}, {"targets", column(targets_)}};
  bind(constants_of(*model_, settings_.own_batch(), settings_.sequence));
}

const TensorMap& ModelTrainer::batch(int64_t pass) {
  const Communicator* const all = settings_.communicator;
  const int64_t before = all == nullptr ? 0 : all->rank() * settings_.own_batch();
  sample_batch(tokens_, settings_.seed, step_count, pass * settings_.batch + before,
               settings_.sequence, ids_, targets_);
  return batch_;
}

int64_t ModelTrainer::dropped() const {
  return model_->dropped.graph == nullptr ? 0 : static_cast<int64_t>(tensor(kDropped).floats()[0]);
}

void ModelTrainer::require_sound() { Trainer::require_sound(batch(0)); }

void ModelTrainer::require_sound_loss() { Trainer::require_sound_loss(batch(0)); }

StepReport ModelTrainer::step() {
  return Trainer::step([this](int64_t pass) { return batch(pass); });
}

Trainer::Profiled ModelTrainer::profile() {
  return Trainer::profile([this](int64_t pass) { return batch(pass); });
}

void ModelTrainer::start_step() {
  Trainer::start_step([this](int64_t pass) { return batch(pass); });
}

}  // namespace coda
