// SPDX-License-Identifier: Apache-2.0
// A loss and its gradients, compiled for one size and run by a backend.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coda/session.h"
#include "coda/trainer.h"

namespace coda {

// The input that a loss's gradient is multiplied by.
constexpr const char* kLossScale = "loss_scale";

// Whether a plan has a tensor of this name: what no step needs has none.
bool has_tensor(const Plan& plan, std::string_view name);

class GradientSession {
 public:
  // `gradients`: memory of the backend for them, as the weights; empty: the session has some.
  GradientSession(const Graph& graph, Value loss, const Weights& weights, Backend& backend,
                  const TrainOptions& options, const std::vector<Tensor>& gradients);

  void bind_constants(const TensorMap& constants);
  void bind_weights(const TensorMap& weights);

  float forward(const TensorMap& batch);  // the loss
  // Gradients of scale * loss, into gradients(); added to them where a step has several passes.
  void backward(float scale);
  // As the weights; they hold until the next forward().
  const std::vector<Tensor>& gradients() const { return gradients_; }

  const Session& session() const { return *session_; }

 private:
  TensorMap on_backend(const TensorMap& tensors);

  Backend& backend_;
  std::unique_ptr<Session> session_;
  std::vector<std::string> inputs_;  // what each batch has
  TensorMap copies_;                 // of tensors of the host, where the backend has other memory
  Tensor scale_;
  std::vector<Tensor> gradients_;  // as weights; of zeros where the plan has none
};

}  // namespace coda
