// SPDX-License-Identifier: Apache-2.0
// Counts memory in the same way as Trainer, DeviceUpdate and Session allocate it.
#include "coda/step_memory.h"

#include <algorithm>
#include <functional>
#include <future>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/free_memory.h"
#include "base/memory_error.h"
#include "base/rounding.h"
#include "coda/communicator.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "runtime/arena.h"
#include "train/gradient_session.h"
#include "train/train_options.h"
#include "train/update_programs.h"
#include "train/update_rows.h"

namespace coda {
namespace {

constexpr int64_t kFloat = 4;

int64_t bytes_of(const PlanTensor& tensor, const DimValues& sizes) {
  const PhysicalShape shape = physical_shape(tensor.decl, sizes);
  return shape.rows * shape.cols * size_of(tensor.decl.dtype);
}

std::vector<ExchangedParameter> parameters_of(const Plan& plan, const DimValues& sizes) {
  std::vector<ExchangedParameter> parameters;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.role != TensorRole::parameter || !tensor.view_of.empty()) continue;
    const PhysicalShape shape = physical_shape(tensor.decl, sizes);
    parameters.push_back(
        {tensor.decl.name, shape.rows * shape.cols, size_of(tensor.decl.dtype) < kFloat});
  }
  return parameters;
}

// Number of elements of all parameters, and of those that the plan reads in 16 bits.
struct Elements {
  int64_t all = 0;
  int64_t copied = 0;

  void add(int64_t elements, bool has_copy) {
    all += elements;
    if (has_copy) copied += elements;
  }
};

// The sum over all parameters.
Elements elements_of(const std::vector<ExchangedParameter>& parameters) {
  Elements sum;
  for (const ExchangedParameter& p : parameters) sum.add(p.elements, p.has_copy);
  return sum;
}

// The matrices of an update (DeviceUpdate), and the places of gradients in them.
struct Matrices {
  Elements elements;
  ResultPlaces places;
};
Matrices matrices_of(const Compiled& compiled, const std::vector<ExchangedParameter>& parameters,
                     const StepPlace& place) {
  const int processes = place.processes;
  const ExchangePlan exchange =
      exchange_plan(compiled, parameters, processes, 0, has_master_weights(place.optimizer, true));
  std::set<std::string> squared;
  if (processes == 1) {
    std::vector<std::string> names;
    for (const ExchangedParameter& p : parameters) names.push_back(p.name);
    Plan plan = compiled.plan;
    squared = leave_squares(plan, names);
  }
  const UpdateRows rows =
      update_rows(parameters, exchange, squared,
                  updated_apart(compiled.parameter_copies, processes, place.optimizer), processes);
  Matrices matrices{{}, gradient_places(parameters, rows)};
  for (size_t i = 0; i < rows.shards.size(); ++i)
    matrices.elements.add(rows.shards[i].rows * UpdateRows::kElements, exchange.shards[i].has_copy);
  return matrices;
}

// Sum over the tensors of this role that are not views and for which `counts` holds.
int64_t sum_of(const Plan& plan, const DimValues& sizes, TensorRole role, const auto& counts) {
  int64_t bytes = 0;
  for (const PlanTensor& tensor : plan.tensors) {
    if (tensor.role == role && tensor.view_of.empty() && counts(tensor))
      bytes += bytes_of(tensor, sizes);
  }
  return bytes;
}

int64_t host_copy_bytes(const Plan& plan, const DimValues& sizes) {
  int64_t bytes = 0;
  for (const HostCopy& copy : plan.host_copies) bytes += bytes_of(plan.tensor(copy.stored), sizes);
  return bytes;
}

// The weights are shared with training.
int64_t evaluation_bytes(const ModelTrainSettings& s, Backend& backend) {
  const ModelTaskGraph task = make_task(s.model,
                                        {.task = ModelTask::losses,
                                         .storage = s.storage,
                                         .batch = s.own_batch(),
                                         .sequence = s.sequence},
                                        backend.rates());
  const Plan plan = compile(task.model->graph, task.request, task.options).plan;
  return plan_arena(plan, task.options.sizes).total_bytes();
}

int64_t sum_of(const std::vector<MemoryUse>& uses) {
  return std::accumulate(uses.begin(), uses.end(), int64_t{0},
                         [](int64_t sum, const MemoryUse& use) { return sum + use.bytes; });
}

// "5.31 GB (weights 1.24 GB, ...)".
std::string text_of(const std::vector<MemoryUse>& uses) {
  std::string list;
  for (const MemoryUse& use : uses) {
    if (use.bytes == 0) continue;
    list +=
        (list.empty() ? " (" : ", ") + use.what + " " + bytes_text(static_cast<double>(use.bytes));
  }
  return bytes_text(static_cast<double>(sum_of(uses))) + (list.empty() ? "" : list + ")");
}

int64_t limit_of(const ModelTrainSettings& settings, Backend& backend) {
  return settings.memory_limit > 0 ? settings.memory_limit : backend.free_bytes();
}

// A change of settings that makes a training step smaller, and slower or less exact.
struct Saving {
  std::string flags;  // of coda train
  std::function<void(ModelTrainSettings&)> apply;
};

// Those that change these settings, the mildest first, except for --layers-on-host: it changes no
// result, but saves least.
std::vector<Saving> savings_of(const ModelTrainSettings& s, const Backend& backend) {
  std::vector<Saving> savings;
  if (s.recomputed_layers != kAllLayers)
    savings.push_back({"--recompute layer", [](auto& its) { its.recomputed_layers = kAllLayers; }});
  // On the host a single process has fp32 states and weights in any case (HostUpdate).
  const bool is_single = s.communicator == nullptr || s.communicator->world() == 1;
  if (backend.is_on_host() && is_single) return savings;
  const std::vector<OptimizerState>& states = s.optimizer.states;
  if (std::ranges::any_of(states, [](const auto& its) { return its.dtype == DType::f32; }))
    savings.push_back({"--moments bf16", [](auto& its) {
                         for (auto& state : its.optimizer.states) state.dtype = DType::bf16;
                       }});
  if (s.storage == DType::bf16 && s.optimizer.weights == DType::f32)
    savings.push_back(
        {"--master-weights bf16", [](auto& its) { its.optimizer.weights = DType::bf16; }});
  if (backend.is_on_host()) return savings;
  if (!states.empty() && !s.optimizer.states_on_host)
    savings.push_back(
        {"--moments-on-host", [](auto& its) { its.optimizer.states_on_host = true; }});
  if (s.recomputed_layers != 0 && !s.layers_on_host)
    savings.push_back({"--layers-on-host", [](auto& its) { its.layers_on_host = true; }});
  return savings;
}

// Bytes for a weight, its gradient and its states. With several processes, only the memory that the
// processes do not share is counted.
int64_t bytes_of_weight(const ModelTrainSettings& s, const Backend& backend) {
  const int world = s.communicator == nullptr ? 1 : s.communicator->world();
  if (world > 1) return kFloat + size_of(DType::bf16);
  if (backend.is_on_host()) return kFloat * (2 + std::ssize(s.optimizer.states));
  int64_t bytes = kFloat + size_of(s.optimizer.weights);
  if (!s.optimizer.states_on_host)
    for (const OptimizerState& state : s.optimizer.states) bytes += size_of(state.dtype);
  return bytes;
}

// A config.json may have any sizes, so this check comes before planning.
void require_memory_of_weights(const ModelTrainSettings& settings, const Backend& backend,
                               int64_t limit) {
  ModelTrainSettings smallest = settings;
  for (const Saving& saving : savings_of(settings, backend)) saving.apply(smallest);
  const double needed = static_cast<double>(bytes_of_weight(smallest, backend)) *
                        static_cast<double>(parameter_count_of(settings.model));
  if (needed <= static_cast<double>(limit)) return;
  throw MemoryError("not enough memory: training takes at least " + bytes_text(needed) +
                    " for the model's weights, and " + bytes_text(static_cast<double>(limit)) +
                    " are free: make the model smaller");
}

// The trainer also keeps the weights in host memory, and the states for a checkpoint.
void require_host_memory(const ModelStep& step) {
  const Plan& plan = step.compiled.plan;
  const DimValues& sizes = step.settings.sizes;
  const Elements elements = elements_of(parameters_of(plan, sizes));
  const Optimizer& optimizer = step.settings.optimizer;
  int64_t bytes = kFloat;
  for (const OptimizerState& state : optimizer.states)
    bytes += kFloat + (optimizer.states_on_host ? size_of(state.dtype) : 0);
  const int64_t of_layers = host_copy_bytes(plan, sizes);
  const int64_t needed = bytes * elements.all + 2 * elements.copied + of_layers;
  const int64_t free = free_memory();
  if (needed <= free) return;
  throw MemoryError("not enough memory: weights" +
                    std::string(of_layers == 0 ? "" : ", inputs of layers (--layers-on-host)") +
                    " and the optimizer's state take " + bytes_text(static_cast<double>(needed)) +
                    " of the host's memory, where " + bytes_text(static_cast<double>(free)) +
                    " are free: make the model smaller" +
                    (of_layers == 0 ? "" : " or leave --layers-on-host out"));
}

// Makes both plans concurrently, because each takes tenths of a second.
FittingStep with_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates) {
  std::future<int64_t> evaluation;
  if (evaluates)
    evaluation =
        std::async(std::launch::async, [&] { return evaluation_bytes(settings, backend); });
  FittingStep found{compile_step(settings, backend.rates()), {}};
  const Plan& plan = found.step.compiled.plan;
  const DimValues& sizes = found.step.settings.sizes;
  const StepPlace place =
      step_place(plan, sizes, backend, settings.communicator, settings.optimizer);
  found.step.workspace = place.workspace;
  found.memory = step_memory(found.step.compiled, sizes, place);
  if (evaluates) found.memory.uses.push_back({"losses of held-out text", evaluation.get()});
  return found;
}

// The same sequences per training step, in more microbatches.
std::optional<ModelTrainSettings> in_passes_of(const ModelTrainSettings& settings, int64_t batch) {
  const int64_t sequences = settings.batch * settings.accumulate;
  const int world = settings.communicator == nullptr ? 1 : settings.communicator->world();
  if (batch < 1 || batch >= settings.batch || sequences % batch != 0 || batch % world != 0)
    return std::nullopt;
  ModelTrainSettings smaller = settings;
  smaller.batch = batch;
  smaller.accumulate = sequences / batch;
  return smaller;
}

}  // namespace

int64_t StepMemory::bytes() const { return sum_of(uses); }

std::string StepMemory::text() const {
  return text_of(uses) +
         (sum_of(on_host) == 0 ? "" : ", and of the host's memory " + text_of(on_host));
}

StepPlace step_place(const Plan& plan, const DimValues& sizes, Backend& backend,
                     const Communicator* communicator, const Optimizer& optimizer) {
  return {backend.is_on_host(), communicator == nullptr ? 1 : communicator->world(),
          backend.workspace_bytes(plan, sizes), optimizer};
}

StepMemory step_memory(const Compiled& compiled, const DimValues& sizes, const StepPlace& place) {
  const Plan& plan = compiled.plan;
  // Parameters are rows of matrices, or separate: see DeviceUpdate.
  const bool has_matrices = !place.is_on_host || place.processes > 1;
  const std::vector<ExchangedParameter> parameters = parameters_of(plan, sizes);
  const Matrices matrices = has_matrices ? matrices_of(compiled, parameters, place)
                                         : Matrices{elements_of(parameters), {}};
  const Elements& elements = matrices.elements;
  const int64_t own = ceil_div(elements.all, int64_t{place.processes});
  // Numbers of fp32 weights. In place on the host weights and states are fp32 in any case.
  int64_t masters = elements.all;
  if (has_matrices) {
    masters -= elements.copied;
    if (has_master_weights(place.optimizer, true))
      masters += ceil_div(elements.copied, int64_t{place.processes});
  }
  int64_t state_bytes = 0;
  for (const OptimizerState& state : place.optimizer.states)
    state_bytes += has_matrices ? size_of(state.dtype) : kFloat;
  const ArenaPlan arena = plan_arena(plan, sizes, !has_matrices, matrices.places);
  // On the host a gradient is in the arena, unless microbatches accumulate.
  const auto is_apart = [&](const PlanTensor& t) {
    return !has_matrices && !arena.results.contains(t.decl.name);
  };
  StepMemory memory;
  const auto add = [&](const char* what, int64_t bytes) { memory.uses.push_back({what, bytes}); };
  add("weights", kFloat * masters + 2 * elements.copied);
  const bool is_state_elsewhere = !place.is_on_host && place.optimizer.states_on_host;
  add("optimizer's state", is_state_elsewhere ? 0 : state_bytes * own);
  memory.on_host = {{"optimizer's state", is_state_elsewhere ? state_bytes * own : 0},
                    {"inputs of layers", host_copy_bytes(plan, sizes)}};
  // Saved tensors share memory with gradients, so gradients need less additional memory.
  add("gradients", arena.lent_bytes + std::min<int64_t>(arena.bytes, 0) +
                       sum_of(plan, sizes, TensorRole::output, is_apart));
  if (place.is_on_host && has_matrices)
    add("a copy of the weights", kFloat * elements.all + 2 * elements.copied);
  add("saved for the backward", arena.saved_bytes);
  add("temporaries", std::max<int64_t>(arena.bytes, 0));
  add("workspace of kernels", place.workspace);
  const auto is_copy = [](const PlanTensor& t) { return size_of(t.decl.dtype) == 1; };
  add("weights in 8 bits", sum_of(plan, sizes, TensorRole::input, is_copy));
  add("batch and tables", sum_of(plan, sizes, TensorRole::input, std::not_fn(is_copy)));
  return memory;
}

StepMemory step_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates) {
  return with_memory(settings, backend, evaluates).memory;
}

StepMemory require_memory(const ModelTrainSettings& settings, Backend& backend, bool evaluates) {
  return fitting_step(settings, backend, evaluates).memory;
}

FittingStep fitting_step(const ModelTrainSettings& settings, Backend& backend, bool evaluates) {
  const int64_t limit = limit_of(settings, backend);
  require_memory_of_weights(settings, backend, limit);
  FittingStep found = with_memory(settings, backend, evaluates);
  if (!backend.is_on_host()) require_host_memory(found.step);
  if (found.memory.bytes() <= limit) return found;
  throw MemoryError("not enough memory: a step of " + std::to_string(settings.own_batch()) +
                    " sequences of " + std::to_string(settings.sequence) + " tokens takes " +
                    found.memory.text() + ", and " + bytes_text(static_cast<double>(limit)) +
                    " are free; what fits: " + what_fits(settings, backend, evaluates, limit));
}

std::string what_fits(const ModelTrainSettings& settings, Backend& backend, bool evaluates,
                      int64_t bytes) {
  std::string fits;
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto try_settings = [&](const ModelTrainSettings& s, const std::string& flags) {
    const int64_t needed = step_memory(s, backend, evaluates).bytes();
    least = std::min(least, needed);
    if (needed > bytes) return false;
    fits += (fits.empty() ? "" : ", or ") + flags + " (" + bytes_text(static_cast<double>(needed)) +
            ")";
    return true;
  };
  const auto try_batches = [&](const ModelTrainSettings& from, const std::string& flags) {
    for (int64_t batch = from.batch - 1; batch > 0; --batch) {
      const auto smaller = in_passes_of(from, batch);
      if (smaller && try_settings(*smaller, flags + (flags.empty() ? "" : " ") + "--batch " +
                                                std::to_string(batch) + " --accumulate " +
                                                std::to_string(smaller->accumulate)))
        return true;
    }
    return false;
  };
  try_batches(settings, "");
  for (const Saving& saving : savings_of(settings, backend)) {
    ModelTrainSettings changed = settings;
    saving.apply(changed);
    try_settings(changed, saving.flags);
  }
  // If no change suffices alone: as few as possible together.
  ModelTrainSettings changed = settings;
  std::string flags;
  while (fits.empty()) {
    const std::vector<Saving> savings = savings_of(changed, backend);
    if (savings.empty()) break;
    savings.front().apply(changed);
    flags += (flags.empty() ? "" : " ") + savings.front().flags;
    if (!try_settings(changed, flags)) try_batches(changed, flags);
  }
  if (!fits.empty()) return fits;
  return "nothing: no batch and no setting takes less than " +
         bytes_text(static_cast<double>(least)) +
         ", so choose a shorter --sequence or a smaller model";
}

}  // namespace coda
