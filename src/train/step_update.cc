// SPDX-License-Identifier: Apache-2.0
// Chooses between HostUpdate and DeviceUpdate.
#include "train/step_update.h"

#include <set>

#include "base/memory_error.h"
#include "coda/messages.h"
#include "train/compared_settings.h"
#include "train/device_update.h"
#include "train/host_update.h"
#include "train/update_programs.h"

namespace coda {

// In a single process, the plan's programs store the squares of gradients that the norm needs. With
// several processes the gradients must be summed first, so the plan cannot store their squares.
std::unique_ptr<StepUpdate> make_update(Compiled& compiled, const Weights& weights,
                                        Backend& backend, const TrainOptions& options) {
  Communicator* const all = options.communicator;
  if (backend.is_on_host() && all == nullptr) return std::make_unique<HostUpdate>(backend, options);
  const int world = all == nullptr ? 1 : all->world();
  std::vector<std::string> names;
  for (const WeightTensor& w : weights) names.push_back(w.name);
  const std::set<std::string> squared =
      world == 1 ? leave_squares(compiled.plan, names) : std::set<std::string>();
  const ExchangePlan exchange =
      exchange_plan(compiled, exchanged_parameters(weights), world, options.exchange_bytes,
                    has_master_weights(options.optimizer, true));
  if (all != nullptr) all->require_same(compared_settings(exchange));
  return std::make_unique<DeviceUpdate>(backend, weights, options, exchange, squared,
                                        compiled.parameter_copies);
}

void make_state(const Optimizer& optimizer, const WeightTensor& weight, ParameterState& state) {
  for (const OptimizerState& its : optimizer.states) {
    std::vector<float>& values = state[its.name];
    if (values.empty())
      values = zeros_for<float>("the state " + in_quotes(its.name) + " of " + optimizer.name +
                                    " for " + in_quotes(weight.name),
                                weight.values.size());
  }
}

}  // namespace coda
