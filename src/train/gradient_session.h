// SPDX-License-Identifier: Apache-2.0
// A session that computes a loss and its gradients for one size.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coda/session.h"
#include "coda/trainer.h"
#include "runtime/eight_bit_scales.h"
#include "runtime/parameter_copies.h"
#include "train/profiler.h"

namespace coda {

// The input by which a loss's gradient is multiplied.
constexpr const char* kLossScale = "loss_scale";

// The name of a weight's gradient in the plan.
std::string gradient_name(const std::string& weight);
// The name of the squares of that gradient; see store_squares.
std::string squares_name(const std::string& weight);
// Lets the plan store squared gradients; returns the weights for which it does.
std::set<std::string> leave_squares(Plan& plan, const std::vector<std::string>& weights);
// Whether the plan has a tensor of this name; unused tensors are removed.
bool has_tensor(const Plan& plan, std::string_view name);

// Throws Error unless the loss is a scalar and the weights are exactly the graph's parameters.
void check_step(const Graph& graph, Value loss, const Weights& weights);
// The plan of a microbatch with the gradients of these parameters.
Compiled compile_step(const Graph& graph, Value loss, const std::vector<std::string>& parameters,
                      const TrainOptions& options, const Rates& rates);

// Memory for gradients, which a session also uses for other tensors until gradients are written.
struct GradientMemory {
  std::vector<Tensor> gradients;  // as the weights
  Tensor all;
  ResultPlaces places;  // of the gradients in it
};

class GradientSession {
 public:
  // `compiled`: from compile_step for these weights. `memory`: from the backend; empty: the session
  // allocates its own.
  GradientSession(const Graph& graph, Compiled compiled, const Weights& weights, Backend& backend,
                  const TrainOptions& options, const GradientMemory& memory);

  void bind_constants(const TensorMap& constants);
  void bind_weights(const TensorMap& weights);
  void bind_squares(const TensorMap& squares);  // by weight

  float forward(const TensorMap& batch);  // the loss
  // Computes gradients of loss / microbatches, accumulated if there are several microbatches.
  void backward();
  // Additional work in a microbatch: before each step of either phase (as in Session; null: none),
  // and between the phases.
  struct Overlapped {
    Session::BeforeStep forward = nullptr;
    std::function<void()> between = nullptr;
    Session::BeforeStep backward = nullptr;
  };
  // forward() and backward() without waiting, for a backend with its own memory. From the second
  // time on, a batch at the same addresses is one recorded launch, one for each combination of null
  // functions. Each function must be the same each time.
  void start_microbatch(const TensorMap& batch, const Overlapped& overlapped);
  // Times the following work; null: stops. While timing, steps are launched one by one.
  void profile(Profiler* profiler);
  // Of the last microbatch; fp32 [1, 1].
  Tensor loss() const;
  // In the order of the weights; valid until the next forward().
  const std::vector<Tensor>& gradients() const { return gradients_; }

  // Call after the weights, their scales or their addresses have changed: updates the 8-bit copies.
  void make_copies();

  const Session& session() const { return *session_; }
  EightBitScales* scales() const { return scales_.get(); }  // null: no 8-bit GEMMs

 private:
  // An input in the backend's memory, with two host buffers: the host may fill one while the other
  // is copied.
  struct Copy {
    Tensor own;
    BackendMemory staged[2];
    std::function<void()> is_read[2];  // waits until the buffer may be filled
    int next = 0;

    void take(const std::string& name, const Tensor& tensor, Backend& backend, Profiler* profiler);
  };

  TensorMap on_backend(const TensorMap& tensors);
  void bind_batch(const TensorMap& batch);
  void forget_recorded() { recorded_.fill(nullptr); }

  Backend& backend_;
  Profiler* profiler_ = nullptr;
  bool is_timed_;  // waits for each step; nothing is recorded
  std::unique_ptr<Session> session_;
  std::unique_ptr<EightBitScales> scales_;
  std::unique_ptr<ParameterCopies> parameter_copies_;  // null: the plan makes them
  std::vector<std::string> inputs_;                    // inputs of each batch
  std::map<std::string, Copy> copies_;
  std::vector<std::pair<const void*, int64_t>> places_;  // last batch's addresses, with row strides
  std::array<std::function<void()>, 4>
      recorded_;  // launches at these addresses: see start_microbatch
  Tensor scale_;
  std::vector<Tensor> gradients_;  // in the order of the weights; zeros if not in the plan
};

}  // namespace coda
