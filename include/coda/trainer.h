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

struct TrainOptions {
  DimValues sizes;                          // of the graph's symbols, in one pass
  DType storage = DType::f32;               // of activations; each parameter has its own type
  int64_t accumulate = 1;                   // passes of a step
  Objective objective = Objective::memory;  // see CompileOptions
  int layers_run_again = 0;                 // see CompileOptions
  int64_t chunk_rows = kAutomaticChunkRows;
  // Products in 8 bits, where the storage is bf16; weights, gradients and activations that no
  // product reads stay as they are.
  EightBits eight_bits = EightBits::none;
  std::vector<std::string> eight_bits_except = {};  // see CompileOptions
  LearningSchedule schedule;
  Optimizer optimizer = make_optimizer("adamw");
  double clip = 1;      // largest norm of a step's gradients; 0: no clipping
  bool timing = false;  // of each step of the plan: see SessionOptions
  // Where several processes train together: `sizes` are those of a pass of one of them, each gives
  // its own batches, and all call the same functions of their trainers. It must outlive the
  // trainer. Null: this one alone.
  Communicator* communicator = nullptr;
  // Gradients that are exchanged beside the backward at once, and weights that are gathered under
  // the forward, in bytes, at least; more than there are: all behind the backward, and beside the
  // update. The results are the same bits.
  int64_t exchange_bytes = 0;
  // Bytes that a step may take of the backend's memory; 0: as many as it has free (free_bytes()).
  int64_t memory_limit = 0;
  // Results of a pass besides the loss, by name, to be read with Trainer::tensor.
  std::vector<NamedValue> outputs = {};
};

struct StepReport {
  double loss = 0;  // mean over the step's passes, of all processes, before the update
  double norm = 0;  // of the gradients, before clipping
  double rate = 0;
  bool asks_to_stop = false;  // one of the processes asked when it started the step
};

class Trainer {
 public:
  // Starts at step 0. `loss` is a scalar of the graph, the loss of one pass; a step's is the mean
  // of its passes. `weights` are the graph's parameters, all of them. The backend must outlive the
  // trainer. Throws Error naming all weights that are missing, that the graph does not have, or
  // that have another size, and for options that have no meaning. Throws MemoryError, before it
  // allocates anything, where a step takes more memory than there is.
  Trainer(const Graph& graph, Value loss, Weights weights, Backend& backend,
          const TrainOptions& options);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Inputs and tables that are the same in every pass (a RoPE table); kept with the trainer. In
  // memory of the host or of the backend, as those of a batch.
  void bind(const TensorMap& constants);

  // One step. batch(pass), for pass 0, 1, ..., gives the pass's tensors: all inputs and tables that
  // were not bound; Error names what is missing, of another size or unknown. Throws Error, naming
  // the step and leaving the state as it was, if loss or gradients are not finite.
  using Batches = std::function<TensorMap(int64_t pass)>;
  StepReport step(const Batches& batch);
  StepReport step(const TensorMap& batch);  // Error where a step has several passes

  // step() in two halves, so that the host prepares the next step while a GPU does this one: what
  // start_step starts, finish_step waits for and reports, the oldest first. step_count counts what
  // is started. At most kMostStarted steps are started and not finished. Where finish_step throws,
  // it and the steps started behind it left the state as it was, and are forgotten.
  static constexpr int kMostStarted = 2;
  void start_step(const Batches& batch);
  StepReport finish_step();
  int started_steps() const;
  // Told to all processes with the next step that is started: each sees it in that step's report.
  bool asks_to_stop = false;

  // step() with the times of what it does, launched one by one: on a GPU without its CUDA graphs,
  // so that the host may be what it waits for where its kernels are short. For several processes
  // each has its own times.
  struct Profiled {
    StepReport report;
    std::vector<ProfileEvent> events;  // by track, then by time
  };
  Profiled profile(const Batches& batch);

  // The loss of a batch with the weights as they are, the mean of all processes'; nothing changes.
  double loss(const TensorMap& batch);
  // Throws Error, naming the step, unless the weights and the loss that they give on a batch are
  // finite. A state is worth keeping only if it passes: an update of finite gradients may end in
  // weights from which no run can go on. Its parts: of the fetched weights of a step, and of the
  // loss of the state as it is.
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
  std::vector<float> eight_bit_scales;  // empty: not known, or no products in 8 bits
  void restored();
  void fetch();
  // fetch() in two halves: what this starts is there once a call of rank 0's result has returned,
  // from any thread. On GPUs steps go on beside it; the next one's update waits until the GPU's
  // memory has been read.
  std::function<void()> start_fetch();
  // Whether what fetch() brings is a copy, which no step changes: not where one process trains on
  // the host.
  bool fetches_copies() const;
  // The weights by name where the backend has them, as another session binds them
  // (Session::bind_known): it sees every later step without a copy. Of several processes they are
  // whole behind restored(), loss(), fetch() and gather_weights(), which all processes call; a step
  // leaves some of them to be gathered under the next one.
  TensorMap parameters();
  const Optimizer& optimizer() const;
  void gather_weights();  // not for while a step is started

  // Of several processes, for people: "gradients in 14 shards, 78 % of them exchanged beside the
  // backward; 80 % of the weights gathered under the next forward". Empty for one.
  const std::string& exchange_text() const;
  // A result of the last pass, one of TrainOptions::outputs.
  Tensor tensor(std::string_view name) const;
  const Session& session() const;

 protected:
  // As the first, where the plan is compiled already, of this step for this backend, and perhaps
  // Backend::workspace_bytes of it is known.
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
