// SPDX-License-Identifier: Apache-2.0
// The update of a training step for a backend with its own memory, or for several processes.
// Weights, optimizer states and gradients stay in the backend's memory. The host does not wait for
// the backend, and the backend does not wait for the host. The global norm and the optimizer's
// update are programs (coda/program.h), so the backend that runs the model runs them too.
//
// An optimizer's formulas are elementwise, so all parameters are stored in one matrix (UpdateRows),
// and each parameter begins at the start of a row. Weights, states, gradients and the 16-bit copies
// are such matrices, so one launch updates all parameters. The elements between two parameters are
// 0 and stay 0. Gradients share memory with other tensors of a microbatch: gradients are valid
// until the next microbatch starts.
//
// A weight that GEMMs read in 8 bits is updated by a separate launch over its own rows and columns,
// which also stores its copies (Compiled::parameter_copies). A program of copies that does not fit
// into that launch runs after the update; with several processes, after the gathering.
//
// With Optimizer::weights bf16 the 16-bit copies are all that there is of their weights.
//
// With several processes, each process stores the states, and the fp32 master weights that have a
// 16-bit copy, only for its own share of the rows (ZeRO-1). Gradients are reduce-scattered, the
// process updates its share, and the values that the next forward reads are gathered. There is then
// one matrix for each shard of the ExchangePlan. A complete shard is exchanged while the backward
// computes the rest. An updated shard is gathered while later shards are updated, or during the
// next forward. A shard holds either parameters that the plan reads directly or parameters that the
// plan reads as copies, because only the former are gathered in fp32.
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
#include "train/profiler.h"
#include "train/step_update.h"
#include "train/update_rows.h"

namespace coda {

class DeviceUpdate : public StepUpdate {
 public:
  // `exchange`: the exchange plan of these weights. `squared`: names of weights whose squared
  // gradients the plan stores (single process only). `copies`: copies of weights, remade whenever
  // the weights change. The backend and the communicator of the options must outlive this object.
  DeviceUpdate(Backend& backend, const Weights& weights, const TrainOptions& options,
               const ExchangePlan& exchange, const std::set<std::string>& squared,
               const std::vector<ParameterCopy>& copies);
  ~DeviceUpdate() override;
  DeviceUpdate(const DeviceUpdate&) = delete;
  DeviceUpdate& operator=(const DeviceUpdate&) = delete;

  GradientMemory gradients() const override { return gradients_; }
  void bind(GradientSession& session) override;
  void start_microbatches() override;
  // With several processes: in the first microbatch of a training step, gathers the weights that
  // start_step() has not gathered, each shard before the first plan step that reads it. In the last
  // microbatch, exchanges gradients while the backward runs.
  GradientSession::Overlapped overlapped(bool is_first, bool is_last) override;
  // Does not wait for the update. Gradients are summed over the processes.
  std::function<StepReport()> start_step(double rate, int64_t step, bool asks_to_stop) override;
  void restore_finiteness() override { is_finite_.fill(1); }

  // With several processes, all processes call both functions, and each process has the state that
  // it uploads. In a download each process copies its own share to the host; the other processes
  // then send their shares to rank 0.
  void upload(Weights& weights, std::vector<ParameterState>& states) override;
  std::function<void()> start_download(Weights& weights,
                                       std::vector<ParameterState>& states) override;
  bool has_own_state() const override { return true; }
  TensorMap parameters() const override { return parameters_; }
  void gather_weights() override;

 private:
  // What each process reports about a training step, in a row of its own: the sum of the losses of
  // its microbatches, and whether it asks to stop.
  enum Reported : uint8_t { loss_sum, stop_request, kReported };
  static constexpr int64_t kNumberStride = 64;  // tensors must be aligned
  // The matrices of a bucket; the matrices of the optimizer's states follow.
  enum : size_t { master, copy, gradient, first_state };
  using Views = std::map<std::string, TensorView, std::less<>>;
  struct Launch {
    std::string name;
    std::unique_ptr<Kernel> kernel;
    std::vector<TensorView> tensors;
    // Names of the tensors that the session supplies; "": not missing.
    std::vector<std::string> missing = {};
  };
  // Rows that are exchanged and stored in the same way: a shard of the ExchangePlan.
  struct Bucket {
    bool has_copy = false;
    size_t start = ExchangePlan::kBehind;  // when its exchange starts
    size_t gather = ExchangePlan::kWithUpdate;
    size_t read = 0;
    std::function<void()> wait;  // for the current gathering; null: none
    int64_t rows = 0;            // of all processes
    int64_t own_rows = 0;
    int64_t first_own = 0;
    int64_t squared_rows = 0;  // leading rows whose squares are in of_spans
    int64_t first_shared = 0;  // the first own row that `update` updates
    int64_t together = 0;
    Tensor of_spans;                // squares of own rows, as row partials
    std::vector<float> decays;      // 1 for a row with weight decay
    std::vector<float> noise_rows;  // kNoiseRows; empty: no noise
    std::vector<Tensor> matrices;
    std::vector<Launch> squares;
    Launch update;
    // For one weight: an update with its copies, or copies made after the update.
    std::deque<Launch> with_copies;
  };
  // The place of a parameter in its bucket.
  struct Part {
    size_t bucket = 0;
    int64_t first_row = 0;
    int64_t rows = 0;  // of the parameter
    int64_t cols = 0;
  };
  struct Prepared;

  void place(const Weights& weights, const ExchangePlan& exchange, const UpdateRows& rows);
  void allocate();
  Tensor on_host(DType dtype, int64_t rows);
  void prepare(const Weights& weights, const std::vector<ParameterCopy>& copies);
  DType type_of(size_t matrix) const;
  std::string name_of_matrix(size_t matrix) const;
  // The matrices of the master weights (if the bucket has them), of the states and, if `with_copy`,
  // of the 16-bit copies (if it has them).
  std::vector<size_t> state_matrices(const Bucket& bucket, bool with_copy) const;
  void check_loss();
  std::function<StepReport()> start_report(double rate);
  void exchange_before(size_t step);
  void gather_before(size_t step);
  Launch launch_of(const Prepared& prepared);
  // Elements of a dense matrix from `first` on.
  static TensorView from(const TensorView& whole, int64_t first, int64_t rows, int64_t cols);
  // Whether the matrix has the rows of all processes or only this one's.
  bool is_whole(const Bucket& bucket, size_t matrix) const;
  TensorView own(const Bucket& bucket, size_t matrix) const;
  // A parameter in its own shape, in a matrix with the rows of all processes.
  TensorView part(size_t matrix, size_t weight) const;
  // The elements [first, first + count) of parameter `weight` that the matrix of process `rank`
  // has, from element `place` of the matrix on.
  struct Held {
    int64_t first = 0;
    int64_t count = 0;  // 0: none
    int64_t place = 0;
  };
  Held held(size_t matrix, size_t weight, int rank) const;
  // This process's part of a matrix that is distributed.
  struct Share {
    size_t matrix = 0;
    size_t bucket = 0;
    TensorView place;
  };
  std::vector<Share> shares() const;
  // The host memory for one parameter's values, by matrix.
  using Fields = std::map<size_t, float*>;
  void receive_shares(std::span<const Fields> fields) const;
  std::function<void()> start_sending();
  TensorView own_numbers(const Tensor& of_all, int64_t rows) const;
  void finish_download();
  void run(const Launch& launch) const;
  void exchange(const char* what, const std::function<void()>& work) const;
  // Calling the result waits for the work.
  std::function<void()> start_concurrently(const char* what, const std::function<void()>& work);
  // Runs until finish_exchanges().
  void exchange_concurrently(const char* what, const std::function<void()>& work);
  void finish_exchanges();
  void add_up(const Bucket& bucket);
  void gather_weights(const Bucket& bucket);
  void make_copies(const Bucket& bucket) const;
  void update();

  Backend& backend_;
  Optimizer optimizer_;
  double clip_;
  int64_t microbatches_;
  Communicator* communicator_;
  GradientSession* session_ = nullptr;
  int rank_ = 0;
  int world_ = 1;
  std::vector<Bucket> buckets_;
  size_t backward_steps_ = 0;
  bool is_gathered_ = true;  // all weights are complete
  // For a download: wait until the backend's memory has been read, and until all is complete; null:
  // none.
  std::function<void()> copied_;
  std::function<void()> downloaded_;
  std::vector<AlignedBuffer> sent_from_;  // shares; reused, because writing to new memory is slow
  std::stop_source gives_up_;             // sending them
  std::vector<std::function<void()>> concurrent_;  // see Communicator::overlap
  std::vector<Part> parts_;                        // in the order of the weights
  std::vector<Tensor> kept_;                       // tensors that programs pass on
  std::vector<BackendMemory> host_memory_;         // of states on the host
  Tensor of_groups_;                               // sums of squares [world, groups of a process]
  Tensor numbers_;           // this step's scalars: the decay, then the optimizer's scalars
  BackendMemory staged_[2];  // host copies for this step and the previous one
  int64_t steps_ = 0;
  Tensor norm_;
  Tensor scale_;      // factor of the gradients for clipping
  Tensor is_finite_;  // 1, or 0 after a value was not finite; fp32 [1, 1], like norm_ and scale_
  Tensor reported_;   // fp32 [kReported * world, kNumberStride]
  TensorMap parameters_;
  GradientMemory gradients_;
  TensorMap squares_;
  Launch loss_check_;
  size_t loss_place_ = 0;  // index in its program's tensors
  Launch norm_launch_;
  std::function<void()> recorded_;
};

}  // namespace coda
