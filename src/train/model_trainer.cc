// SPDX-License-Identifier: Apache-2.0
#include "coda/model_trainer.h"

#include "coda/error.h"
#include "coda/model_runner.h"
#include "io/batches.h"
#include "train/train_options.h"

namespace coda {

TrainOptions train_options_of(const ModelTrainSettings& s, const ModelGraph& model) {
  TrainOptions options{.sizes = {{"M", s.own_batch() * s.sequence}, {"T", s.sequence}},
                       .storage = s.storage,
                       .accumulate = s.accumulate,
                       .objective = s.objective,
                       .run_layers_again = s.run_layers_again,
                       .chunk_rows = s.loss_rows,
                       .eight_bits = s.eight_bits,
                       .schedule = s.schedule,
                       .adamw = s.adamw,
                       .clip = s.clip,
                       .timing = s.timing,
                       .communicator = s.communicator,
                       .exchange_bytes = s.exchange_bytes,
                       .memory_limit = s.memory_limit};
  if (model.dropped.graph != nullptr) options.outputs = {{kDropped, model.dropped}};
  return options;
}

int64_t ModelTrainSettings::own_batch() const {
  const int64_t world = communicator == nullptr ? 1 : communicator->world();
  require(batch % world == 0, "a pass of " + std::to_string(batch) +
                                  " sequences cannot be shared by " + std::to_string(world) +
                                  " processes: choose a multiple of them (--batch)");
  return batch / world;
}

std::unique_ptr<ModelGraph> model_of(const ModelTrainSettings& s) {
  check_sizes(s.model, s.own_batch(), s.sequence);
  const int64_t rows = expert_rows_of(s.model, s.expert_capacity, s.own_batch() * s.sequence);
  return build_model(s.model, {.storage = s.storage, .positions = s.sequence, .expert_rows = rows});
}

ModelTrainer::ModelTrainer(const ModelTrainSettings& settings, const Tokens& tokens,
                           Backend& backend)
    : ModelTrainer(settings, tokens, backend, model_of(settings)) {}

ModelTrainer::ModelTrainer(const ModelTrainSettings& settings, const Tokens& tokens,
                           Backend& backend, std::unique_ptr<ModelGraph> model)
    : Trainer(model->graph, model->loss, initial_weights(*model, settings.seed), backend,
              train_options_of(settings, *model)),
      settings_(settings),
      tokens_(tokens),
      model_(std::move(model)),
      ids_(static_cast<size_t>(settings.own_batch() * settings.sequence)),
      targets_(ids_.size()) {
  const auto column = [](std::vector<int32_t>& values) {
    return Tensor(dense_view(values.data(), DType::i32, std::ssize(values), 1));
  };
  batch_ = {{"ids", column(ids_)}, {"targets", column(targets_)}};
  bind(constants_of(*model_, settings.own_batch(), settings.sequence));
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
