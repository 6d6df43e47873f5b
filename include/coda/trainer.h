// SPDX-License-Identifier: Apache-2.0
// Trains any graph that has a loss, one training step at a time: the gradients of a batch (in
// several microbatches if the batch is large), clipping, and an optimizer on fp32 weights. The
// state after n steps depends only on settings, data and n. A run that resumes from a saved state
// therefore has bitwise the results of an uninterrupted run.
//
//     Trainer trainer(graph, loss, initial_weights(graph, 1), *backend, options);
//     while (trainer.step_count < options.schedule.total_steps) trainer.step({{"x", x}, {"t", t}});
//     save_weights("net.safetensors", trainer.weights);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/communicator.h"
#include "coda/compile.h"
#include "coda/optimizer.h"
#include "coda/profile.h"
#include "coda/schedule.h"
#include "coda/session.h"
#include "coda/weights.h"

namespace CODA_API coda {

// PlanChoices::storage is of activations only: each parameter has its own type.
struct TrainOptions : PlanChoices {
  TrainOptions() { loss_rows = kAutomaticLossRows; }

  DimValues sizes;         // of the graph's symbols, in one microbatch
  int64_t accumulate = 1;  // microbatches of a training step
  LearningSchedule schedule;
  Optimizer optimizer = make_optimizer("adamw");
  double clip = 1;      // largest norm of the gradients; 0: no clipping
  bool timing = false;  // of each plan step: see SessionOptions
  // For training with several processes: `sizes` are those of one process's microbatch, each
  // process passes its own batches, and all call the same functions of their trainers in the same
  // order. The communicator must outlive the trainer. Null: a single process.
  Communicator* communicator = nullptr;
  // Minimum number of bytes of gradients to exchange in one group during the backward, and of
  // weights to gather in one group during the forward. If it exceeds the total, all gradients are
  // exchanged after the backward and all weights are gathered during the update. The results are
  // bitwise the same.
  int64_t exchange_bytes = 0;
  // Limit of the backend's memory for a training step; 0: what is free (free_bytes()).
  int64_t memory_limit = 0;
  // Further named results of a microbatch, which Trainer::tensor returns.
  std::vector<NamedValue> outputs = {};
};

struct StepReport {
  double loss = 0;  // mean over all microbatches and processes, before the update
  double norm = 0;  // of the gradients, before clipping
  double rate = 0;
  bool asks_to_stop = false;  // a process had set asks_to_stop when it started the step
};

class Trainer {
 public:
  // Starts at step 0. `loss` is a scalar of the graph, the loss of one microbatch; the loss of a
  // training step is the mean over its microbatches. `weights` must be all parameters of the graph.
  // The backend must outlive the trainer. Throws Error naming all weights that are missing, unknown
  // or of the wrong size, and for invalid options. Throws MemoryError, before it allocates
  // anything, if a training step needs more memory than is available.
  Trainer(const Graph& graph, Value loss, Weights weights, Backend& backend,
          const TrainOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Binds inputs and tables that are equal in all microbatches (a RoPE table), in host or backend
  // memory. The trainer keeps them.
  void bind(const TensorMap& constants);

  // Runs one training step. batch(i) returns the tensors of microbatch i = 0, 1, ...: all inputs
  // and tables that are not bound. Throws Error naming missing, unknown or wrongly sized tensors.
  // If the loss or the gradients are not finite, throws Error naming the step and leaves the state
  // unchanged.
  using Batches = std::function<TensorMap(int64_t pass)>;
  StepReport step(const Batches& batch);
  StepReport step(const TensorMap& batch);  // Error if `accumulate` is more than 1

  // step() in two halves, so that the host can prepare the next training step while a GPU runs this
  // one. finish_step waits for the oldest started step and reports it. step_count counts started
  // steps. At most kMostStarted steps may be started and not finished. If finish_step throws, that
  // step and all steps started after it are discarded, and the state is unchanged.
  static constexpr int kMostStarted = 2;
  void start_step(const Batches& batch);
  StepReport finish_step();
  int started_steps() const;
  // A request to stop that is sent to all processes with the next started step and appears in the
  // report of that step in each process.
  bool asks_to_stop = false;

  // step() with a timeline of its work. Kernels are launched one by one instead of in CUDA graphs,
  // so with short kernels the host may be the bottleneck. Each process gets its own events.
  struct Profiled {
    StepReport report;
    std::vector<ProfileEvent> events;  // by track, then by time
  };
  Profiled profile(const Batches& batch);

  // The loss of a batch with the current weights, as the mean over all processes. Changes nothing.
  double loss(const TensorMap& batch);
  // Throws Error, naming the step, unless the weights and their loss on a batch are finite. Only
  // save a state that passes: an update with finite gradients may still produce weights from which
  // no run can continue. require_finite_weights checks the fetched weights, require_sound_loss the
  // loss of the current state.
  void require_sound(const TensorMap& batch);
  void require_finite_weights(int64_t step) const;
  void require_sound_loss(const TensorMap& batch);

  // The number of steps done. A caller that restores a saved state, or sets weights, sets these
  // fields and then calls restored(). A backend with its own memory trains a copy of the weights
  // and states there. fetch() copies weights and states to these fields; call it before reading
  // them. Until then the states are empty. On the host, fetch() copies only the scales. With
  // several processes, every process must have the state that it restores, and fetch() gives the
  // state to rank 0. Do not call restored() or fetch() while a step is started.
  int64_t step_count = 0;
  Weights weights;
  std::vector<ParameterState> states;   // the optimizer's states, one entry for each of `weights`
  std::vector<float> eight_bit_scales;  // empty: not known yet, or no 8-bit GEMMs
  void restored();
  void fetch();
  // Starts fetch(). The fields are valid once the function returned in rank 0 has been called; it
  // may be called from any thread. On GPUs training steps continue meanwhile, but the next update
  // waits until the GPU's memory has been read.
  std::function<void()> start_fetch();
  // Whether fetch() makes copies, which later training steps do not change. False for a single
  // process on the host.
  bool fetches_copies() const;
  // The weights by name in the backend's memory, for binding in another session
  // (Session::bind_known), which then sees every later training step without a copy. With several
  // processes the weights are complete only after restored(), loss(), fetch() or gather_weights(),
  // which all processes must call, because a training step leaves some weights to be gathered
  // during the next one.
  TensorMap parameters();
  const Optimizer& optimizer() const;
  void gather_weights();  // not while a training step is started

  // A summary for people, with several processes: "gradients in 14 shards, 78 % of them exchanged
  // during the backward; 80 % of the weights gathered during the next forward". Empty for one
  // process.
  const std::string& exchange_text() const;
  // A result of the last microbatch, one of TrainOptions::outputs.
  Tensor tensor(std::string_view name) const;
  const Session& session() const;

 protected:
  // As the public constructor, with a plan that is already compiled for this training step and
  // backend, and possibly a known Backend::workspace_bytes.
  Trainer(const Graph& graph, Value loss, Weights weights, Backend& backend,
          const TrainOptions& options, Compiled compiled, std::optional<int64_t> workspace);

 private:
  void start(const Graph& graph, Backend& backend, const TrainOptions& options, Compiled compiled,
             std::optional<int64_t> workspace);
  void require_none_started(const char* what) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace CODA_API coda
