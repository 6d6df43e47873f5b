// SPDX-License-Identifier: Apache-2.0
// A loss and its gradients, compiled for one size and run by a backend.
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

// The input that a loss's gradient is multiplied by.
constexpr const char* kLossScale = "loss_scale";

// What a plan calls the gradient of a weight.
std::string gradient_name(const std::string& weight);
// And the squares of that gradient: see store_squares.
std::string squares_name(const std::string& weight);
// The weights whose gradients' squares the plan then stores, of these.
std::set<std::string> leave_squares(Plan& plan, const std::vector<std::string>& weights);
// Whether a plan has a tensor of this name: what no step needs has none.
bool has_tensor(const Plan& plan, std::string_view name);

// Throws Error unless the loss is one number and the weights are the graph's parameters, all of
// them.
void check_step(const Graph& graph, Value loss, const Weights& weights);
// The plan of a pass, with the gradients of these parameters.
Compiled compile_step(const Graph& graph, Value loss, const std::vector<std::string>& parameters,
                      const TrainOptions& options, const Rates& rates);

// Memory for gradients, in which a session keeps other tensors until they are made.
struct GradientMemory {
  std::vector<Tensor> gradients;  // as the weights
  Tensor all;
  ResultPlaces places;  // of the gradients in it
};

class GradientSession {
 public:
  // `compiled`: by compile_step, of these weights. `memory`: of the backend; none: the session has
  // some.
  GradientSession(const Graph& graph, Compiled compiled, const Weights& weights, Backend& backend,
                  const TrainOptions& options, const GradientMemory& memory);

  void bind_constants(const TensorMap& constants);
  void bind_weights(const TensorMap& weights);
  void bind_squares(const TensorMap& squares);  // by weight

  float forward(const TensorMap& batch);  // the loss
  // Gradients of loss / passes, into gradients(); added to them where a step has several passes.
  void backward();
  // What else is done in a pass: before each step of either phase, as Session has it (null:
  // nothing), and between the phases.
  struct Beside {
    Session::BeforeStep forward = nullptr;
    std::function<void()> between = nullptr;
    Session::BeforeStep backward = nullptr;
  };
  // forward() and backward(), without waiting for any of it: for a backend with memory of its own.
  // From the second time on a batch that lies where the one before did is one recorded launch, one
  // for each choice of null functions. Each function must be the same each time.
  void start_pass(const TensorMap& batch, const Beside& beside);
  // What follows is timed; null: no more. Then a pass is launched step by step.
  void profile(Profiler* profiler);
  // Of the last pass; fp32 [1, 1].
  Tensor loss() const;
  // As the weights; they hold until the next forward().
  const std::vector<Tensor>& gradients() const { return gradients_; }

  // Behind a change of the weights, of their scales, or of where they lie: what passes read of the
  // weights in 8 bits.
  void make_copies();

  const Session& session() const { return *session_; }
  EightBitScales* scales() const { return scales_.get(); }  // null: no products in 8 bits

 private:
  // A tensor of the host where the backend has other memory, and the two places from which it is
  // copied there: the host may fill one while the other is read.
  struct Copy {
    Tensor own;
    BackendMemory staged[2];
    std::function<void()> is_read[2];  // waits until it may be filled
    int next = 0;

    void take(const std::string& name, const Tensor& tensor, Backend& backend, Profiler* profiler);
  };

  TensorMap on_backend(const TensorMap& tensors);
  void bind_batch(const TensorMap& batch);
  void forget_recorded() { recorded_.fill(nullptr); }

  Backend& backend_;
  Profiler* profiler_ = nullptr;
  bool is_timed_;  // then each step is waited for, and nothing is recorded
  std::unique_ptr<Session> session_;
  std::unique_ptr<EightBitScales> scales_;
  std::unique_ptr<ParameterCopies> parameter_copies_;  // null: the plan makes them
  std::vector<std::string> inputs_;                    // what each batch has
  std::map<std::string, Copy> copies_;
  std::vector<std::pair<const void*, int64_t>> places_;  // of the last batch, with row strides
  std::array<std::function<void()>, 4> recorded_;  // passes over a batch there: see start_pass
  Tensor scale_;
  std::vector<Tensor> gradients_;  // as weights; of zeros where the plan has none
};

}  // namespace coda
