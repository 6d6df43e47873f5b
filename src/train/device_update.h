// SPDX-License-Identifier: Apache-2.0
// A step's update where a backend has memory of its own, or several processes share it: weights,
// moments and gradients stay in the backend's memory, and nothing waits for the host, nor the host
// for it. The global norm and AdamW are programs (see coda/program.h), so whatever backend runs the
// model runs them too.
//
// All parameters are one matrix of rows (UpdateRows), each parameter from the start of a row;
// weights, moments, gradients and the 16-bit copies are such matrices, so that AdamW of all
// parameters is one launch. What lies between two parameters is 0 and stays 0. A pass keeps other
// tensors where gradients will be until it makes them, so these hold until the next pass.
//
// A weight that products read in 8 bits is updated by a launch of its own, over its own rows and
// columns, which leaves its copies too (Compiled::parameter_copies). Where a program of copies does
// not fit in there, it runs behind the update, and of several processes behind the gathering.
//
// Of several processes each keeps moments, and master weights that have a 16-bit copy, of its own
// share of the rows only (ZeRO-1): gradients are reduce-scattered, the share is updated, and what
// the next forward reads is gathered. There are several matrices then, the shards of an
// ExchangePlan: what is complete is exchanged beside the backward that computes the rest, and
// gathered beside the update of the shards behind it or under the next forward. Parameters that are
// read as they are and those that are read as copies are in different shards, as only the former
// are gathered in fp32.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "coda/backend.h"
#include "coda/communicator.h"
#include "coda/compile.h"
#include "coda/trainer.h"
#include "train/gradient_session.h"
#include "train/profiler.h"
#include "train/update_rows.h"

namespace coda {

class DeviceUpdate {
 public:
  // clip: the largest norm of a step's gradients, 0: any. `exchange`: of these weights. `squared`:
  // names of weights whose gradients' squares somebody else leaves in squares(), of one process
  // only. `copies`: of weights, made whenever these have changed. `communicator`: null where there
  // is one process. Both it and the backend must outlive it.
  DeviceUpdate(Backend& backend, const Weights& weights, const AdamWOptions& options, double clip,
               const ExchangePlan& exchange, const std::set<std::string>& squared,
               const std::vector<ParameterCopy>& copies, Communicator* communicator);
  ~DeviceUpdate();
  DeviceUpdate(const DeviceUpdate&) = delete;
  DeviceUpdate& operator=(const DeviceUpdate&) = delete;

  // All of the state, to the backend and back. Of several processes all call both; each has what
  // it uploads, and rank 0 gets what is downloaded. A download goes on beside what is run next:
  // what is downloaded is there once a call of rank 0's result has returned, and start_step() waits
  // until the backend's memory has been read. Each process copies its own share to the host, and
  // the others send theirs to rank 0 from there.
  void upload(Weights& weights, std::vector<Moments>& moments);
  std::function<void()> start_download(Weights& weights, std::vector<Moments>& moments);

  // What a plan reads, by name; whole behind gather_weights() and upload().
  const TensorMap& parameters() const { return parameters_; }
  const GradientMemory& gradients() const { return gradients_; }
  // By name, of the weights that are `squared`: row partials of sums of the gradient's squares,
  // fp32 [rows, columns / 64].
  const TensorMap& squares() const { return squares_; }
  // Before the first step: where the tensors of `copies` lie, and what is done in each step behind
  // the norm, before any copy is made: their scales are found.
  void bind_copies(const std::function<TensorView(const std::string&)>& place,
                   std::function<void()> behind_norm);
  void clear_gradients();

  // Before a step's passes: their losses are added up from 0.
  void clear_losses();
  // Behind a pass's forward: if its loss is not finite, no later step changes the state until
  // restore_soundness().
  void check_loss(const Tensor& loss);
  // In the last pass of a step of several processes, before each step of the plan's backward and
  // behind the last, as Session::BeforeStep has it: exchanges gradients beside the backward.
  void exchange_before(size_t step);
  // In the first pass, before each step of the plan's forward and behind the last: gathers the
  // weights that start_step() has not, each shard before a step reads it.
  void gather_before(size_t step);
  // The same at once, where another than that forward reads the weights.
  void gather_weights();
  // AdamW's step `step` (1, 2, ...) as adamw_step has it, with gradients summed over the processes
  // and scaled to the largest norm. Nothing waits for it. If the norm, or a loss of any process
  // since the last step, is not finite, this and later steps leave the state as it was.
  // `asks_to_stop` is told to all processes.
  void start_step(double rate, int64_t step, bool asks_to_stop);
  // What follows is timed; null: no more. Then the update is launched step by step.
  void profile(Profiler* profiler) { profiler_ = profiler; }
  // Of the gradients of the last step, before scaling; fp32 [1, 1].
  const Tensor& norm() const { return norm_; }
  // What each process says of the last step, fp32 [kSaid * world, kNumberStride], in the first
  // element of a row: the sum of its passes' losses, and whether it asks to stop.
  enum Said : uint8_t { loss_sum, stop_request, kSaid };
  static constexpr int64_t kNumberStride = 64;  // backends want tensors aligned
  const Tensor& said() const { return said_; }
  // 1, or 0 since a loss or a norm was not finite; fp32 [1, 1].
  const Tensor& is_sound() const { return is_sound_; }
  void restore_soundness() { is_sound_.fill(1); }

 private:
  enum Matrix { master, copy, m, v, gradient, kMatrices };
  using Views = std::map<std::string, TensorView, std::less<>>;
  struct Launch {
    std::string name;
    std::unique_ptr<Kernel> kernel;
    std::vector<TensorView> tensors;
    std::vector<std::string> missing = {};  // bind_copies() has them: names, or empty
  };
  // Rows that are exchanged, and whose state is stored, alike: a shard of the ExchangePlan.
  struct Bucket {
    bool has_copy = false;
    size_t start = ExchangePlan::kBehind;  // of its exchange
    size_t gather = ExchangePlan::kWithUpdate;
    size_t read = 0;
    std::function<void()> wait;  // for the gathering that goes on; null: none
    int64_t rows = 0;            // of all processes
    int64_t own_rows = 0;
    int64_t first_own = 0;
    int64_t squared_rows = 0;    // from the first, whose squares are left in of_spans
    int64_t first_together = 0;  // of own rows: those that `adamw` updates
    int64_t together = 0;
    Tensor of_spans;            // squares of own rows, as row partials
    std::vector<float> decays;  // 1 where a row decays
    Tensor matrices[kMatrices];
    std::vector<Launch> squares;
    Launch adamw;
    std::deque<Launch> with_copies;  // of a weight: AdamW and copies, or copies of the new weight
  };
  // Of a parameter in its bucket.
  struct Part {
    size_t bucket = 0;
    int64_t first_row = 0;
    int64_t rows = 0;  // of the parameter
    int64_t cols = 0;
  };
  struct Prepared;

  void place(const Weights& weights, const ExchangePlan& exchange, const UpdateRows& rows);
  void allocate();
  void prepare(double clip, const Weights& weights, const std::vector<ParameterCopy>& copies);
  Launch launch_of(const Prepared& prepared);
  // Elements of a dense matrix from one on.
  static TensorView from(const TensorView& whole, int64_t first, int64_t rows, int64_t cols);
  // Whether it has the rows of all processes, or this one's only.
  bool is_whole(const Bucket& bucket, Matrix matrix) const;
  TensorView own(const Bucket& bucket, Matrix matrix) const;
  // A parameter as its own shape, in a matrix that is whole.
  TensorView part(Matrix matrix, size_t weight) const;
  // Elements [first, first + count) of parameter `weight` that the matrix of process `rank` has,
  // from element `place` of the matrix on.
  struct Held {
    int64_t first = 0;
    int64_t count = 0;  // 0: none
    int64_t place = 0;
  };
  Held held(Matrix matrix, size_t weight, int rank) const;
  // Of a matrix that is not whole, this process's part.
  struct Share {
    Matrix matrix = master;
    size_t bucket = 0;
    TensorView place;
  };
  std::vector<Share> shares() const;
  // Where the host has a parameter's values of a matrix.
  struct Fields {
    float* of[kMatrices] = {};
  };
  void receive_shares(std::span<const Fields> fields) const;
  std::function<void()> start_sending();
  TensorView own_numbers(const Tensor& of_all, int64_t rows) const;
  void finish_download();
  void run(const Launch& launch) const;
  void exchange(const char* what, const std::function<void()>& work) const;
  // The result waits for it.
  std::function<void()> start_beside(const char* what, const std::function<void()>& work);
  // Until finish_exchanges().
  void exchange_beside(const char* what, const std::function<void()>& work);
  void finish_exchanges();
  void add_up(const Bucket& bucket);
  void gather_weights(const Bucket& bucket);
  void make_copies(const Bucket& bucket) const;
  void update();

  Backend& backend_;
  AdamWOptions options_;
  Communicator* communicator_;
  int rank_ = 0;
  int world_ = 1;
  std::vector<Bucket> buckets_;
  size_t backward_steps_ = 0;
  bool is_gathered_ = true;  // all weights are whole
  // Of a download: wait until it has read the backend's memory, and for all of it; null: none.
  std::function<void()> copied_;
  std::function<void()> downloaded_;
  std::vector<AlignedBuffer> sent_from_;       // shares; kept, as new memory is slow to write
  std::stop_source gives_up_;                  // sending them
  std::vector<std::function<void()>> beside_;  // see Communicator::beside
  std::vector<Part> parts_;                    // as the weights
  std::vector<Tensor> kept_;                   // what the programs hand on
  Tensor of_groups_;                           // sums of squares [world, groups of a process]
  Tensor numbers_;                             // of this step: see Number
  BackendMemory staged_[2];  // numbers_ of this step and the one before, on the host
  int64_t steps_ = 0;
  Tensor norm_;
  Tensor scale_;     // of the gradients, for their largest norm
  Tensor is_sound_;  // 1, or 0 since something was not finite
  Tensor said_;
  TensorMap parameters_;
  GradientMemory gradients_;
  TensorMap squares_;
  Launch loss_check_;
  size_t loss_place_ = 0;  // among its program's tensors
  Launch norm_launch_;
  std::function<void()> behind_norm_;  // null: nothing
  std::function<void()> recorded_;
  Profiler* profiler_ = nullptr;
};

}  // namespace coda
