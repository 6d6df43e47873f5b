// SPDX-License-Identifier: Apache-2.0
// Implements the public checkpoint functions for a Trainer (coda/checkpoint.h, coda/run.h).
#include "coda/checkpoint.h"
#include "coda/run.h"

#include <algorithm>

#include "base/atomic_file.h"
#include "coda/messages.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "train/checkpoint.h"
#include "train/step_update.h"
#include "train/stored_weights.h"
#include "train/update_programs.h"

namespace coda {
namespace {

// Views of the trainer's state on the host. Weights without fp32 master weights are bf16 only.
std::vector<CheckpointTensor> state_of(Trainer& trainer) {
  std::vector<CheckpointTensor> tensors;
  for (size_t i = 0; i < trainer.weights.size(); ++i) {
    WeightTensor& w = trainer.weights[i];
    ParameterState& state = trainer.states[i];
    make_state(trainer.optimizer(), w, state);
    CheckpointTensor& tensor = tensors.emplace_back();
    tensor.name = w.name;
    tensor.shape = w.shape;
    if (has_master_weights(trainer.optimizer(), !w.bf16.empty())) tensor.weights = w.values;
    tensor.bf16 = w.bf16;
    for (const OptimizerState& its : trainer.optimizer().states)
      tensor.states.emplace_back(its.name, state.find(its.name)->second);
  }
  return tensors;
}

}  // namespace

std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer,
                                      int keep) {
  RunState state;
  state.step = trainer.step_count;
  trainer.fetch();
  state.eight_bit_scales = trainer.eight_bit_scales;
  state.optimizer = trainer.optimizer().name;
  return save_checkpoint(run_folder, std::nullopt, state_of(trainer), state, {}, keep);
}

std::filesystem::path save_checkpoint(const std::filesystem::path& run_folder,
                                      const ModelConfig& config, Trainer& trainer,
                                      const RunState& state, const ModelFiles& files, int keep) {
  return checkpoint_writer(run_folder, config, trainer, state, files, keep)();
}

std::function<std::filesystem::path()> checkpoint_writer(const std::filesystem::path& run_folder,
                                                         const ModelConfig& config,
                                                         Trainer& trainer, const RunState& state,
                                                         const ModelFiles& files, int keep) {
  RunState of_step = state;
  const std::function<void()> fetched = trainer.start_fetch();
  of_step.step = trainer.step_count;
  of_step.eight_bit_scales = trainer.eight_bit_scales;
  of_step.optimizer = trainer.optimizer().name;
  return [=, &trainer] {
    fetched();
    trainer.require_finite_weights(of_step.step);
    return save_checkpoint(run_folder, config, state_of(trainer), of_step, files, keep);
  };
}

RunState restore(const std::filesystem::path& checkpoint, Trainer& trainer) {
  RunState state = load_run_state(checkpoint);
  require(state.optimizer == trainer.optimizer().name,
          printable(checkpoint) + ": its optimizer is " + in_quotes(state.optimizer) +
              ", but this trainer's is " + in_quotes(trainer.optimizer().name) +
              " (resume with the optimizer of the run that saved it)");
  const std::vector<CheckpointTensor> tensors = state_of(trainer);
  load_tensors(checkpoint, tensors);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].weights.empty()) trainer.weights[i].widen();
  trainer.step_count = state.step;
  trainer.eight_bit_scales = state.eight_bit_scales;
  trainer.restored();
  return state;
}

bool load_checkpoint(const std::filesystem::path& run_folder, Trainer& trainer) {
  const auto newest = newest_checkpoint(run_folder);
  if (newest) restore(*newest, trainer);
  return newest.has_value();
}

void require_weights(const std::filesystem::path& model_folder, const ModelConfig& config) {
  require_stored(config, io::open_model_weights(model_folder));
}

void save_model(const std::filesystem::path& folder, const ModelConfig& config,
                const Weights& weights) {
  std::filesystem::create_directories(folder);
  std::vector<io::TensorToWrite> tensors = stored_form(weights);
  bool is_bf16 = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].bf16.empty()) continue;
    is_bf16 = true;
    tensors[i].type = io::ElementType::bf16;
    tensors[i].bytes = std::as_bytes(std::span(weights[i].bf16));
  }
  io::write_safetensors(folder / "model.safetensors", tensors);
  write_file_atomically(folder / "config.json",
                        io::model_config_text(config, is_bf16 ? DType::bf16 : DType::f32));
}

ModelConfig load_model_config(const std::filesystem::path& folder) {
  return io::read_model_config(find_model_folder(folder));
}

}  // namespace coda
