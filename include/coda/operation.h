// SPDX-License-Identifier: Apache-2.0
// Operations that the compiler treats as opaque calls: attention, embedding, and operations that a
// program defines itself. An Operation describes one completely: the shapes of its results, its
// gradient as a graph, its value in float64, its kernels. register_operation() registers it and
// opaque_call() adds a call to a graph.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coda/api.h"
#include "coda/graph.h"
#include "coda/tensor.h"

namespace CODA_API coda {

// A [rows, cols] row-major float64 matrix.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> data;

  double& at(int64_t r, int64_t c) { return data[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return data[static_cast<size_t>(r * cols + c)]; }
};

// The attributes and sizes of a call. `attributes` has all that the operation declares, with
// defaults filled in. A size is a form over symbols in a graph, and a number when the call is run.
struct OperationSettings {
  std::map<std::string, double> attributes;
  std::map<std::string, Dim> sizes;

  double attribute(const std::string& name) const { return attributes.at(name); }
  // An attribute that is a count: Error unless it is an integer from `least` to 2^31 - 1.
  int64_t count(const std::string& name, int64_t least = 1) const;
  // A size of a call that is run.
  int64_t size(const std::string& name) const { return sizes.at(name).constant(); }
};

struct OperationResult {
  Shape shape;
  // Stored in fp32 for any storage type of the plan (statistics); false: in the plan's storage
  // type.
  bool fp32 = false;
};

// A tensor for which a kernel is prepared: row r starts at element r * row_stride.
struct OperationTensor {
  std::string name;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
};

// A call with known sizes, for which a kernel is prepared.
struct OperationCall {
  std::string operation;
  OperationSettings settings;
  std::vector<OperationTensor> tensors;  // operands, then results
  size_t operands = 0;
  // For kernels of a GPU: the target that they are compiled for ("sm90"; docs/gpus.md), and the
  // number of its multiprocessors.
  std::string gpu_target = {};
  uint32_t multiprocessors = 0;

  // Throws Error naming the operation unless the condition holds.
  void check(bool holds, const std::string& problem) const;
  // Throws Error naming the tensor unless it has one of the types.
  void check_type(size_t tensor, std::initializer_list<DType> types) const;
};

// A prepared CPU kernel. It gets the operands, then the results, in the shapes and types that it
// was prepared for, with any row stride. Only one thread at a time calls it.
using CpuKernel = std::function<void(std::span<const TensorView> tensors)>;

// A descriptor by which a kernel for Hopper loads boxes of a tensor of 16-bit elements with the
// copy engine (device/sm90/ptx/tma_matrices.cuh). The tensor is a stack of matrices of
// `matrix_rows` rows. Its rows may begin anywhere: the backend copies a tensor that the engine
// cannot address.
struct GpuTensorMap {
  size_t tensor = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrix_rows = 0;
  uint32_t box_rows = 0;
  uint32_t box_cols = 0;  // 64: then rows of a box are swizzled over 128 bytes
};

// A GPU kernel as CUDA text, which is compiled on the machine that runs it:
//   <code>
//   extern "C" __global__ void <name>(...) { <body> }
// In the body, p(i) is the address of tensor i (operands, then results) as a 64-bit integer, and
// n(i) is numbers[i], 32 bits. Behind the last tensor, p(i) is the address of the call's scratch.
// m(i) is the address of the descriptor maps[i].
// The text may include only files of device/ ("device/element.cuh" loads and stores elements of any
// type).
struct GpuKernel {
  std::string name;
  std::string code;
  std::string body;
  std::vector<uint32_t> numbers;
  std::vector<GpuTensorMap> maps = {};
  uint32_t grid = 1;     // blocks
  uint32_t threads = 1;  // per block; a thread has at most 65536 / threads registers
  uint32_t shared_bytes = 0;
  // Bytes of scratch memory that all kernels of a call share, so that a kernel can pass results to
  // a later one. The backend allocates the maximum over the kernels of the call.
  int64_t scratch_bytes = 0;
};

// Enqueues work on the caller's stream (a CUstream) and does not wait for it: for kernels of
// another library, or kernels that the program compiled itself. The tensors are in device memory.
using GpuFunction = std::function<void(void* stream, std::span<const TensorView> tensors)>;

struct Operation {
  std::string name;                   // an identifier
  std::vector<std::string> operands;  // names of the operands, for messages
  // Names of operands that may follow, in this order. A call has one if the attribute of its name,
  // which the operation declares with the default 0, is 1.
  std::vector<std::string> optional_operands;
  // Each attribute with its default; an attribute without a default is required.
  std::map<std::string, std::optional<double>> attributes;
  std::vector<std::string> sizes;  // all are required
  // The kernels accept one additional operand with the shape of the only result, and add it to the
  // result; both may share memory. This lets gradients accumulate without an extra pass over
  // memory.
  bool can_add = false;

  // The shapes of the results. Throws Error for operand shapes, attributes or sizes that do not
  // fit; opaque_call adds the call's operands and the caller's line to the message. Must not depend
  // on whether sizes are symbols or numbers.
  std::function<std::vector<OperationResult>(const OperationSettings& settings,
                                             const std::vector<Shape>& operands)>
      results;
  // Builds the gradients of the operands from the gradients of the results, with any builders. A
  // Value without a graph stands for a zero gradient, in arguments and results. The forward saves
  // the operands and results that the gradients use. Empty: the operation is not differentiable.
  std::function<std::vector<Value>(
      const OperationSettings& settings, const std::vector<Value>& operands,
      const std::vector<Value>& results, const std::vector<Value>& gradients)>
      adjoint;
  // Computes the results in float64; they are passed with their shapes and filled with 0. This is
  // the definition that kernels are tested against.
  std::function<void(const OperationSettings& settings, const std::vector<Matrix>& operands,
                     std::vector<Matrix>& results)>
      evaluate;
  // Prepares a kernel that may use `threads` threads. Results must not depend on their number.
  // Empty: the CPU backend rejects plans with this operation.
  std::function<CpuKernel(const OperationCall& call, int threads)> cpu;
  // GPU backends need one of the two: kernels as text, launched in order, or a function.
  std::function<std::vector<GpuKernel>(const OperationCall& call)> gpu;
  std::function<GpuFunction(const OperationCall& call)> gpu_function;
};

// Registers the operation in this process, permanently. Throws Error if the name is taken, or if
// name, results or evaluate is missing. Thread-safe.
const Operation& register_operation(Operation operation);

// The operation of that name; Error with the nearest name if there is none.
const Operation& find_operation(std::string_view name);

// Calls a registered operation and returns its results. Throws Error with the caller's line for an
// unknown or missing operation, attribute or size, and for operands that do not fit.
std::vector<Value> opaque_call(std::string_view operation, const std::vector<Value>& operands,
                               const std::map<std::string, double>& attributes = {},
                               const std::map<std::string, Dim>& sizes = {},
                               Where where = Where::current());

// The number of operands of a call, without one that the result is added to. Throws Error for an
// attribute of an optional operand that is neither 0 nor 1.
size_t operand_count(const Operation& operation, const OperationSettings& settings);

// The settings of a call with defaults filled in. Throws Error for unknown or missing ones.
OperationSettings checked_settings(const Operation& operation,
                                   const std::map<std::string, double>& attributes,
                                   const std::map<std::string, Dim>& sizes);

}  // namespace CODA_API coda
