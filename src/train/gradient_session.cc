// SPDX-License-Identifier: Apache-2.0
// Compiles the gradient plan, and records the launches of a microbatch for replay.
#include "train/gradient_session.h"

#include <algorithm>
#include <utility>

#include "coda/error.h"
#include "plan/after/result_squares.h"
#include "runtime/copy_matrix.h"

namespace coda {
namespace {

constexpr const char* kLoss = "loss";

// Checks that the weights are exactly the graph's parameters, with equal sizes and types.
void check_weights(const Graph& graph, const Weights& weights) {
  std::string problems;
  const auto add = [&](const std::string& name, const std::string& problem) {
    problems += (problems.empty() ? "" : "; ") + ("weight '" + name + "' " + problem);
  };
  for (const WeightTensor& w : weights) {
    const int id = graph.find_input(w.name);
    if (id < 0 || graph.node(id).kind != InputKind::parameter) {
      add(w.name, "is no parameter of the graph");
      continue;
    }
    const Node& node = graph.node(id);
    const DType dtype = w.bf16.empty() ? DType::f32 : DType::bf16;
    if (node.shape != Shape{w.rows, w.cols} || node.dtype != dtype) {
      add(w.name, "is " + std::string(name_of(dtype)) + " " + Shape{w.rows, w.cols}.text() +
                      ", but the graph's is " + std::string(name_of(node.dtype)) + " " +
                      node.shape.text());
    }
  }
  for (int id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op != Op::input || node.kind != InputKind::parameter) continue;
    const bool is_there = std::any_of(weights.begin(), weights.end(),
                                      [&](const WeightTensor& w) { return w.name == node.name; });
    if (!is_there) add(node.name, "is missing");
  }
  require(problems.empty(), problems);
}

}  // namespace

std::string gradient_name(const std::string& weight) { return "grad." + weight; }
std::string squares_name(const std::string& weight) { return "squares." + weight; }

std::set<std::string> leave_squares(Plan& plan, const std::vector<std::string>& weights) {
  std::map<std::string, std::string> results;
  for (const std::string& weight : weights)
    if (has_tensor(plan, gradient_name(weight)))
      results[gradient_name(weight)] = squares_name(weight);
  const std::set<std::string> stored = store_squares(plan, results);
  std::set<std::string> squared;
  for (const std::string& weight : weights)
    if (stored.contains(gradient_name(weight))) squared.insert(weight);
  return squared;
}

bool has_tensor(const Plan& plan, std::string_view name) {
  return std::any_of(plan.tensors.begin(), plan.tensors.end(),
                     [&](const PlanTensor& t) { return t.decl.name == name; });
}

void check_step(const Graph& graph, Value loss, const Weights& weights) {
  require(graph.node(loss.id).shape.is_scalar(),
          "the loss to train is " + graph.node(loss.id).shape.text() +
              ": it must be one number, [1, 1] (the mean of each row's, for one)");
  check_weights(graph, weights);
}

Compiled compile_step(const Graph& given, Value loss, const std::vector<std::string>& parameters,
                      const TrainOptions& options, const Rates& rates) {
  Graph graph = given;
  CompileOptions compiling;
  static_cast<PlanChoices&>(compiling) = options;
  compiling.rates = rates;
  compiling.sizes = options.sizes;
  compiling.overwrite_saved = true;  // each forward has one backward
  compiling.copies_are_given = true;
  CompileRequest request;
  request.outputs = {{kLoss, graph.value(loss.id)}};
  for (const NamedValue& output : options.outputs)
    request.outputs.push_back({output.name, graph.value(output.value.id)});
  request.seeds = {{graph.value(loss.id), graph.input(kLossScale, {1, 1}), true}};
  for (const std::string& name : parameters) {
    request.gradients.push_back({graph.value(graph.find_input(name)), gradient_name(name),
                                 DType::f32, options.accumulate > 1});
  }
  return compile(graph, request, compiling);
}

GradientSession::GradientSession(const Graph& given, Compiled compiled, const Weights& weights,
                                 Backend& backend, const TrainOptions& options,
                                 const GradientMemory& memory)
    : backend_(backend), is_timed_(options.timing) {
  session_ = std::make_unique<Session>(std::move(compiled.plan), backend, options.sizes,
                                       SessionOptions{.timing = options.timing,
                                                      .own_results = memory.gradients.empty(),
                                                      .result_places = memory.places,
                                                      .result_memory = memory.all});
  if (!compiled.first_scales.empty()) {
    scales_ = std::make_unique<EightBitScales>(backend, std::move(compiled.first_scales),
                                               options.communicator);
    scales_->bind(*session_);
  }
  if (!compiled.parameter_copies.empty()) {
    parameter_copies_ =
        std::make_unique<ParameterCopies>(backend, std::move(compiled.parameter_copies), *session_);
  }
  // Tensors that are not inputs of the graph are allocated here.
  for (const std::string& name : session_->missing()) {
    const int id = given.find_input(name);
    if (id < 0) continue;
    if (given.node(id).kind != InputKind::parameter) inputs_.push_back(name);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string name = gradient_name(weights[i].name);
    const bool is_there = has_tensor(session_->plan(), name);
    Tensor& gradient = gradients_.emplace_back();
    if (is_there && session_->owns(name)) {
      gradient = session_->tensor(name);
      continue;
    }
    gradient = memory.gradients.empty()
                   ? Tensor(DType::f32, weights[i].rows, weights[i].cols, backend)
                   : memory.gradients[i];
    if (is_there) session_->bind(name, gradient);
  }
  for (const NamedValue& output : options.outputs) {
    if (session_->owns(output.name)) continue;
    const TensorDecl& decl = session_->plan().tensor(output.name).decl;
    const PhysicalShape shape = physical_shape(decl, options.sizes);
    session_->bind(output.name, Tensor(decl.dtype, shape.rows, shape.cols, backend));
  }
  scale_ = Tensor(DType::f32, 1, 1, backend);
  const int world = options.communicator == nullptr ? 1 : options.communicator->world();
  scale_.fill(1.0F / static_cast<float>(options.accumulate * world));
  session_->bind_known({{kLossScale, scale_}});
  if (!session_->owns(kLoss)) session_->bind(kLoss, Tensor(DType::f32, 1, 1, backend));
}

void GradientSession::Copy::take(const std::string& name, const Tensor& tensor, Backend& backend,
                                 Profiler* profiler) {
  const auto bytes = static_cast<size_t>(tensor.size() * size_of(tensor.dtype()));
  if (own.dtype() != tensor.dtype() || own.rows() != tensor.rows() || own.cols() != tensor.cols()) {
    own = Tensor(tensor.dtype(), tensor.rows(), tensor.cols(), backend);
    for (BackendMemory& memory : staged) memory = backend.allocate_on_host(bytes, "a batch");
  }
  if (is_read[next]) is_read[next]();
  const TensorView host =
      dense_view(staged[next].get(), tensor.dtype(), tensor.rows(), tensor.cols());
  copy_matrix(tensor.view(), host);
  run_profiled(profiler, ProfileTrack::transfers, "copy " + name,
               [&] { backend.start_copy_in(host, own.view()); });
  is_read[next] = backend.mark();
  next = 1 - next;
}

TensorMap GradientSession::on_backend(const TensorMap& tensors) {
  if (backend_.is_on_host()) return tensors;
  TensorMap moved;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_on_host()) {
      moved.emplace(name, tensor);
      continue;
    }
    Copy& copy = copies_[name];
    copy.take(name, tensor, backend_, profiler_);
    moved.emplace(name, copy.own);
  }
  return moved;
}

void GradientSession::bind_constants(const TensorMap& constants) {
  forget_recorded();
  for (const auto& [name, tensor] : on_backend(constants)) {
    session_->bind(name, tensor);
    std::erase(inputs_, name);
  }
}

void GradientSession::bind_weights(const TensorMap& weights) {
  forget_recorded();
  session_->bind_known(weights);
}

void GradientSession::bind_squares(const TensorMap& squares) {
  forget_recorded();
  for (const auto& [weight, tensor] : squares) session_->bind(squares_name(weight), tensor);
}

void GradientSession::bind_batch(const TensorMap& batch) {
  std::string problems;
  for (const std::string& name : inputs_)
    if (!batch.contains(name)) problems += "tensor '" + name + "' is missing; ";
  std::vector<std::pair<const void*, int64_t>> places;
  try {
    const TensorMap own = on_backend(batch);
    session_->bind(own);
    for (const auto& [name, tensor] : own)
      places.emplace_back(tensor.view().data, tensor.view().row_stride);
  } catch (const Error& error) {
    throw Error("a batch: " + problems + error.what());
  }
  require(problems.empty(), "a batch: " + problems.substr(0, problems.size() - 2));
  if (places == places_) return;
  places_ = places;
  forget_recorded();
}

float GradientSession::forward(const TensorMap& batch) {
  bind_batch(batch);
  session_->forward();
  return loss().floats()[0];
}

void GradientSession::backward() { session_->backward(); }

void GradientSession::make_copies() {
  if (parameter_copies_ == nullptr) return;
  if (scales_ != nullptr) scales_->start_copies();
  parameter_copies_->make();
}

void GradientSession::start_microbatch(const TensorMap& batch, const Overlapped& overlapped) {
  bind_batch(batch);
  std::function<void()>& recorded =
      recorded_[(overlapped.forward ? 2U : 0U) + (overlapped.backward ? 1U : 0U)];
  if (recorded && profiler_ == nullptr) return recorded();
  const auto work = [this, overlapped] {
    session_->forward(overlapped.forward);
    overlapped.between();
    session_->backward(overlapped.backward);
  };
  work();
  if (!is_timed_ && profiler_ == nullptr) recorded = backend_.record(work);
}

void GradientSession::profile(Profiler* profiler) {
  profiler_ = profiler;
  Session::Observer observer;
  if (profiler != nullptr) {
    observer = [profiler](const std::string& name, const std::function<void()>& run) {
      const bool is_copy = name.starts_with("copy ");
      profiler->run(is_copy ? ProfileTrack::transfers : ProfileTrack::compute, name, run);
    };
  }
  session_->observe(std::move(observer));
}

Tensor GradientSession::loss() const { return session_->tensor(kLoss); }

}  // namespace coda
