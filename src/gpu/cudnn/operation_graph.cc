// SPDX-License-Identifier: Apache-2.0
// Creates cuDNN's descriptors from the plain data, and tries engines in cuDNN's order.
#include "gpu/cudnn/operation_graph.h"

#include <string>
#include <utility>

#include "coda/error.h"

namespace coda::gpu::cudnn {
namespace {

constexpr int kHeuristicsModeA = 3;  // the ranking that cuDNN's documentation recommends
constexpr int64_t kMostConfigs = 16;

Descriptor tensor_descriptor(const GraphTensor& tensor, int64_t id) {
  Descriptor made(Kind::tensor);
  made.set(Attribute::tensor_type, ValueType::data_type, tensor.type);
  made.set(Attribute::tensor_dimensions, ValueType::int64, 4, tensor.sizes.data());
  made.set(Attribute::tensor_strides, ValueType::int64, 4, tensor.strides.data());
  made.set(Attribute::tensor_id, ValueType::int64, id);
  made.set(Attribute::tensor_alignment, ValueType::int64, int64_t{16});
  made.set(Attribute::tensor_is_virtual, ValueType::boolean, tensor.place == Place::engine);
  made.set(Attribute::tensor_is_by_value, ValueType::boolean, tensor.place == Place::by_value);
  made.finalize();
  return made;
}

// Adds the descriptors of an operation's tensors, then of the operation.
void add_operation(const GraphOperation& op, const std::vector<Descriptor>& tensors,
                   std::vector<Descriptor>& kept, std::vector<void*>& operations) {
  const auto input = [&](size_t i) -> const Descriptor& { return tensors[op.inputs[i]]; };
  const Descriptor& output = tensors[op.output];
  const auto finish = [&](Descriptor made) {
    made.finalize();
    operations.push_back(made.get());
    kept.push_back(std::move(made));
  };
  switch (op.kind) {
    case OperationKind::pointwise: {
      Descriptor mode(Kind::pointwise);
      mode.set(Attribute::pointwise_mode, ValueType::pointwise_mode, op.pointwise);
      mode.set(Attribute::pointwise_precision, ValueType::data_type, op.precision);
      if (op.axis >= 0) mode.set(Attribute::pointwise_axis, ValueType::int64, op.axis);
      mode.finalize();
      Descriptor made(Kind::pointwise_operation);
      made.set(Attribute::pointwise_descriptor, mode);
      made.set(Attribute::pointwise_x, input(0));
      if (op.inputs.size() > 1) made.set(Attribute::pointwise_b, input(1));
      if (op.inputs.size() > 2) made.set(Attribute::pointwise_t, input(2));
      made.set(Attribute::pointwise_y, output);
      kept.push_back(std::move(mode));
      return finish(std::move(made));
    }
    case OperationKind::matmul: {
      Descriptor mode(Kind::matmul);
      mode.set(Attribute::matmul_precision, ValueType::data_type, op.precision);
      mode.finalize();
      Descriptor made(Kind::matmul_operation);
      made.set(Attribute::matmul_a, input(0));
      made.set(Attribute::matmul_b, input(1));
      made.set(Attribute::matmul_c, output);
      made.set(Attribute::matmul_descriptor, mode);
      kept.push_back(std::move(mode));
      return finish(std::move(made));
    }
    case OperationKind::reduction: {
      Descriptor mode(Kind::reduction);
      mode.set(Attribute::reduction_mode, ValueType::reduction_mode, op.reduction);
      mode.set(Attribute::reduction_precision, ValueType::data_type, op.precision);
      mode.finalize();
      Descriptor made(Kind::reduction_operation);
      made.set(Attribute::reduction_x, input(0));
      made.set(Attribute::reduction_y, output);
      made.set(Attribute::reduction_descriptor, mode);
      kept.push_back(std::move(mode));
      return finish(std::move(made));
    }
    case OperationKind::reshape: {
      Descriptor made(Kind::reshape_operation);
      made.set(Attribute::reshape_x, input(0));
      made.set(Attribute::reshape_y, output);
      return finish(std::move(made));
    }
  }
}

// The engines that can run the graph, in cuDNN's order.
std::vector<Descriptor> engine_configs(const Descriptor& graph) {
  Descriptor heuristics(Kind::heuristics);
  heuristics.set(Attribute::heuristics_graph, graph);
  heuristics.set(Attribute::heuristics_mode, ValueType::heuristics_mode, kHeuristicsModeA);
  heuristics.finalize();
  std::vector<Descriptor> configs;
  std::vector<void*> handles;
  for (int64_t i = 0; i < kMostConfigs; ++i) {
    configs.emplace_back(Kind::engine_config);
    handles.push_back(configs.back().get());
  }
  int64_t count = 0;
  check(api().get_attribute(heuristics.get(), static_cast<int>(Attribute::heuristics_results),
                            static_cast<int>(ValueType::descriptor), kMostConfigs, &count,
                            static_cast<void*>(handles.data())),
        "ranking engines");
  while (std::ssize(configs) > count) configs.pop_back();
  return configs;
}

}  // namespace

int OperationGraph::add(const GraphTensor& tensor) {
  tensors.push_back(tensor);
  return static_cast<int>(tensors.size()) - 1;
}

int OperationGraph::number(float value) { return add({.place = Place::by_value, .value = value}); }

int OperationGraph::pointwise(Pointwise mode, std::vector<int> inputs, const GraphTensor& result,
                              DataType precision, int64_t axis) {
  const int output = add(result);
  operations.push_back({.kind = OperationKind::pointwise,
                        .inputs = std::move(inputs),
                        .output = output,
                        .pointwise = mode,
                        .axis = axis,
                        .precision = precision});
  return output;
}

void OperationGraph::pointwise_into(int output, Pointwise mode, std::vector<int> inputs) {
  operations.push_back({.kind = OperationKind::pointwise,
                        .inputs = std::move(inputs),
                        .output = output,
                        .pointwise = mode});
}

void OperationGraph::matmul(int a, int b, int output) {
  operations.push_back({.kind = OperationKind::matmul, .inputs = {a, b}, .output = output});
}

void OperationGraph::reduce(Reduction mode, int input, int output) {
  operations.push_back(
      {.kind = OperationKind::reduction, .inputs = {input}, .output = output, .reduction = mode});
}

void OperationGraph::reshape(int input, int output) {
  operations.push_back({.kind = OperationKind::reshape, .inputs = {input}, .output = output});
}

Handle::Handle() { check(api().create(&handle_), "making a handle"); }
Handle::~Handle() {
  if (handle_ != nullptr) api().destroy(handle_);
}
void Handle::use_stream(void* stream) {
  if (stream == stream_) return;
  check(api().set_stream(handle_, stream), "choosing a stream");
  stream_ = stream;
}

Descriptor::Descriptor(Kind kind) {
  check(api().create_descriptor(static_cast<int>(kind), &descriptor_), "making a descriptor");
}
Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) api().destroy_descriptor(descriptor_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void Descriptor::set(Attribute attribute, ValueType type, int64_t count, const void* values) {
  check(api().set_attribute(descriptor_, static_cast<int>(attribute), static_cast<int>(type), count,
                            values),
        "describing a graph");
}
void Descriptor::set(Attribute attribute, const Descriptor& part) {
  void* const handle = part.get();
  set(attribute, ValueType::descriptor, 1, static_cast<const void*>(&handle));
}
void Descriptor::finalize() { check(api().finalize(descriptor_), "accepting a part of a graph"); }

CompiledGraph::CompiledGraph(const Handle& handle, OperationGraph graph)
    : graph_(std::move(graph)) {
  std::vector<Descriptor> tensors;
  for (const GraphTensor& tensor : graph_.tensors)
    tensors.push_back(tensor_descriptor(tensor, std::ssize(tensors) + 1));
  std::vector<void*> operations;
  for (const GraphOperation& op : graph_.operations) add_operation(op, tensors, kept_, operations);
  Descriptor whole(Kind::operation_graph);
  whole.set(Attribute::graph_operations, ValueType::descriptor, std::ssize(operations),
            static_cast<const void*>(operations.data()));
  whole.set(Attribute::graph_handle, ValueType::handle, handle.get());
  whole.finalize();
  for (Descriptor& tensor : tensors) kept_.push_back(std::move(tensor));

  std::string why = "it knows no engine for the graph";
  for (Descriptor& config : engine_configs(whole)) {
    try {
      Descriptor plan(Kind::plan);
      plan.set(Attribute::plan_handle, ValueType::handle, handle.get());
      plan.set(Attribute::plan_config, config);
      plan.finalize();
      int64_t count = 0;
      int64_t bytes = 0;
      check(api().get_attribute(plan.get(), static_cast<int>(Attribute::plan_workspace),
                                static_cast<int>(ValueType::int64), 1, &count, &bytes),
            "asking for a plan's workspace");
      workspace_bytes_ = static_cast<size_t>(bytes);
      plan_ = plan.get();
      kept_.push_back(std::move(plan));
      kept_.push_back(std::move(config));
      break;
    } catch (const Error& error) {  // try the next engine
      why = error.what();
    }
  }
  kept_.push_back(std::move(whole));
  require(plan_ != nullptr, why);
}

void CompiledGraph::run(const Handle& handle, std::span<void* const> memory, void* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    GraphTensor& tensor = graph_.tensors[i];
    if (tensor.place == Place::engine) continue;
    ids.push_back(static_cast<int64_t>(i) + 1);
    pointers.push_back(tensor.place == Place::memory ? memory[i] : &tensor.value);
  }
  Descriptor pack(Kind::variant_pack);
  pack.set(Attribute::pack_ids, ValueType::int64, std::ssize(ids), ids.data());
  pack.set(Attribute::pack_pointers, ValueType::void_pointer, std::ssize(pointers),
           static_cast<const void*>(pointers.data()));
  pack.set(Attribute::pack_workspace, ValueType::void_pointer, workspace);
  pack.finalize();
  check(api().execute(handle.get(), plan_, pack.get()), "running a graph");
}

}  // namespace coda::gpu::cudnn
