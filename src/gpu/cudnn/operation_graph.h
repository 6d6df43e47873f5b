// SPDX-License-Identifier: Apache-2.0
// A graph of cuDNN's operations as plain data, and its compilation. cuDNN needs an engine that runs
// the whole graph in one kernel; its documentation lists such graphs, and attention_graph.cc builds
// the two that are used here.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cudnn/cudnn_api.h"

namespace coda::gpu::cudnn {

using Sizes = std::array<int64_t, 4>;  // [sequence, head, row, column]

enum class Place : uint8_t {
  memory,   // device memory of the caller, aligned to 16 bytes
  engine,   // passed between operations ("virtual")
  by_value  // one number on the host
};

struct GraphTensor {
  DataType type = DataType::f32;
  Sizes sizes{1, 1, 1, 1};
  Sizes strides{1, 1, 1, 1};  // elements
  Place place = Place::engine;
  float value = 0;  // by_value
};

enum class OperationKind : uint8_t { pointwise, matmul, reduction, reshape };

// Tensors are indices into OperationGraph::tensors.
struct GraphOperation {
  OperationKind kind{};
  std::vector<int> inputs;
  int output = -1;
  Pointwise pointwise{};
  int64_t axis = -1;  // of Pointwise::index
  Reduction reduction{};
  DataType precision = DataType::f32;  // of the computation
};

struct OperationGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperation> operations;

  int add(const GraphTensor& tensor);
  int number(float value);
  // Adds an operation with one result; `result` describes it.
  int pointwise(Pointwise mode, std::vector<int> inputs, const GraphTensor& result,
                DataType precision = DataType::f32, int64_t axis = -1);
  void pointwise_into(int output, Pointwise mode, std::vector<int> inputs);
  void matmul(int a, int b, int output);
  void reduce(Reduction mode, int input, int output);
  void reshape(int input, int output);
};

// A cuDNN handle for one GPU. Must not be used by two threads at once.
class Handle {
 public:
  // Uses the calling thread's CUDA context. Throws Error.
  Handle();
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void* get() const { return handle_; }
  void use_stream(void* stream);

 private:
  void* handle_ = nullptr;
  void* stream_ = nullptr;
};

class Descriptor {
 public:
  explicit Descriptor(Kind kind);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;

  void* get() const { return descriptor_; }
  void set(Attribute attribute, ValueType type, int64_t count, const void* values);
  template <class Enum>
  void set(Attribute attribute, ValueType type, Enum value) {
    set(attribute, type, 1, static_cast<const void*>(&value));
  }
  void set(Attribute attribute, const Descriptor& part);
  void finalize();

 private:
  void* descriptor_ = nullptr;
};

class CompiledGraph {
 public:
  // Throws Error if cuDNN has no engine for the graph.
  CompiledGraph(const Handle& handle, OperationGraph graph);

  size_t workspace_bytes() const { return workspace_bytes_; }

  // Enqueues the graph on the handle's stream. `memory`: an address for each tensor; ignored for
  // tensors that are not in memory. `workspace`: on the device.
  void run(const Handle& handle, std::span<void* const> memory, void* workspace);

 private:
  OperationGraph graph_;
  std::vector<Descriptor> kept_;  // objects that the plan refers to
  void* plan_ = nullptr;          // one of them
  size_t workspace_bytes_ = 0;
};

}  // namespace coda::gpu::cudnn
