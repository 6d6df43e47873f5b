// SPDX-License-Identifier: Apache-2.0
// Operations that the compiler does not look into (opaque calls): attention, embedding, and those
// of a program of one's own. An Operation says all that is to be known of one: the shapes of its
// results, its gradient as a graph of calls and builders, its value in float64, its kernels.
// register_operation() makes it known, opaque_call() puts it into a graph; the rest is as for any
// other node.
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

// The numbers of a call: all attributes that its operation declares, those that were not given at
// their defaults, and its sizes: forms over symbols in a graph, numbers where it is run.
struct OperationSettings {
  std::map<std::string, double> attributes;
  std::map<std::string, Dim> sizes;

  double attribute(const std::string& name) const { return attributes.at(name); }
  // An attribute that counts: Error unless it is a whole number from `least` to 2^31 - 1.
  int64_t count(const std::string& name, int64_t least = 1) const;
  // A size where a call is run.
  int64_t size(const std::string& name) const { return sizes.at(name).constant(); }
};

struct OperationResult {
  Shape shape;
  // Stored in fp32 whatever the plan stores in (statistics); else as the plan stores tensors.
  bool fp32 = false;
};

// A tensor that a kernel is prepared for: row r starts at element r * row_stride.
struct OperationTensor {
  std::string name;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
};

// A call with its sizes known, as kernels are prepared for it.
struct OperationCall {
  std::string operation;
  OperationSettings settings;
  std::vector<OperationTensor> tensors;  // operands, then results
  size_t operands = 0;

  // Error that names the operation unless the condition holds.
  void check(bool holds, const std::string& problem) const;
  // Error that names the tensor unless it has one of the types.
  void check_type(size_t tensor, std::initializer_list<DType> types) const;
};

// A prepared kernel of the CPU. It gets the operands, then the results: in the shapes and types
// that it was prepared for, at any row stride. One thread calls it at a time.
using CpuKernel = std::function<void(std::span<const TensorView> tensors)>;

// A kernel of a GPU as CUDA text, which is compiled where it is run:
//   <code>
//   extern "C" __global__ void <name>(...) { <body> }
// In the body p(i) is the address of tensor i (operands, then results) as a 64-bit number, and n(i)
// is numbers[i], 32 bits. The text may include what lies in device/ ("device/element.cuh" loads and
// stores elements of any type) and nothing else.
struct GpuKernel {
  std::string name;
  std::string code;
  std::string body;
  std::vector<uint32_t> numbers;
  uint32_t grid = 1;     // blocks
  uint32_t threads = 1;  // of a block: a thread has at most 65536 / threads registers
  uint32_t shared_bytes = 0;
};

// Enqueues work on the caller's stream (a CUstream) and does not wait for it: for kernels that the
// program compiled itself, or of another library. The tensors lie in device memory.
using GpuFunction = std::function<void(void* stream, std::span<const TensorView> tensors)>;

struct Operation {
  std::string name;                   // an identifier
  std::vector<std::string> operands;  // what they are called in messages
  // Each attribute with its default; without one it must be given.
  std::map<std::string, std::optional<double>> attributes;
  std::vector<std::string> sizes;  // all must be given
  // The kernels take one operand more, of the only result's shape, and add the result to it; both
  // may be the same memory. So gradients that are added up go without a pass over memory.
  bool can_add = false;

  // The results' shapes. Throws Error for operands (their shapes), attributes or sizes that do not
  // fit; the message gets the call's operands and the caller's line. Must not depend on whether
  // sizes are symbols or numbers.
  std::function<std::vector<OperationResult>(const OperationSettings& settings,
                                             const std::vector<Shape>& operands)>
      results;
  // Gradients of the operands from those of the results, built of any builders. A gradient without
  // a graph is 0, in both. What of operands and results it uses is what the forward saves. Empty:
  // the operation cannot be differentiated.
  std::function<std::vector<Value>(
      const OperationSettings& settings, const std::vector<Value>& operands,
      const std::vector<Value>& results, const std::vector<Value>& gradients)>
      adjoint;
  // The results, which have their shapes and are 0, in float64: the definition that kernels are
  // held against.
  std::function<void(const OperationSettings& settings, const std::vector<Matrix>& operands,
                     std::vector<Matrix>& results)>
      evaluate;
  // Prepares a kernel for `threads` threads. Results must not depend on their number. Empty: a plan
  // with such a call is refused by the CPU backend.
  std::function<CpuKernel(const OperationCall& call, int threads)> cpu;
  // For a GPU one of the two: kernels as text, launched one after another, or a function.
  std::function<std::vector<GpuKernel>(const OperationCall& call)> gpu;
  std::function<GpuFunction(const OperationCall& call)> gpu_function;
};

// Makes the operation known to the whole program, for good. Throws Error if there is one of that
// name, or if name, results or evaluate is missing. May be called from any thread.
const Operation& register_operation(Operation operation);

// The operation of that name; Error with the nearest name if there is none.
const Operation& find_operation(std::string_view name);

// A call of a registered operation: its results. Throws Error with the caller's line for an
// operation, attribute or size that is not known or missing, and for operands that do not fit.
std::vector<Value> opaque_call(std::string_view operation, const std::vector<Value>& operands,
                               const std::map<std::string, double>& attributes = {},
                               const std::map<std::string, Dim>& sizes = {},
                               Where where = Where::current());

// The settings of a call as its operation completes and checks them: what is unknown or missing is
// an Error.
OperationSettings checked_settings(const Operation& operation,
                                   const std::map<std::string, double>& attributes,
                                   const std::map<std::string, Dim>& sizes);

}  // namespace CODA_API coda
