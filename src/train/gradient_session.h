// SPDX-License-Identifier: Apache-2.0
// A loss and its gradients, compiled for one size and run by a backend, with the gradients where
// the host can read them.
#pragma once

#include <memory>
#include <span>
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
  GradientSession(const Graph& graph, Value loss, const Weights& weights, Backend& backend,
                  const TrainOptions& options);

  void bind_constants(const TensorMap& constants);
  void bind_weights(Weights& weights);
  // After an update: a backend with other memory than the host's gets the new values.
  void refresh(Weights& weights);

  void clear_gradients();                 // where passes add up
  float forward(const TensorMap& batch);  // the loss
  void backward(float scale);             // gradients of scale * loss, into gradients()
  // As the weights; they hold until the next forward().
  const std::vector<std::span<float>>& gradients();

  const Session& session() const { return *session_; }

 private:
  TensorMap on_backend(const TensorMap& tensors);

  Backend& backend_;
  bool accumulate_;
  std::unique_ptr<Session> session_;
  std::vector<std::string> inputs_;  // what each batch has
  TensorMap copies_;                 // of tensors of the host, where the backend has other memory
  Tensor scale_;
  std::vector<Tensor> gradient_tensors_;  // as weights; of no memory where the plan has none
  std::vector<std::vector<float>> host_gradients_;  // where the tensors are not the host's
  std::vector<std::span<float>> gradients_;
  TensorMap weight_tensors_;
};

}  // namespace coda
