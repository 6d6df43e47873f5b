// SPDX-License-Identifier: Apache-2.0
// Wraps an operation's code and body in the kernel interface that all emitted kernels have.
#include "gpu/launch/operation_launches.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/rounding.h"
#include "coda/error.h"
#include "gpu/launch/device_pointer.h"
#include "runtime/operation_call.h"
#include "runtime/why_unfit.h"

namespace coda::gpu {
namespace {

class FunctionKernel : public Kernel {
 public:
  FunctionKernel(std::shared_ptr<GpuState> state, OperationCall call, GpuFunction function)
      : state_(std::move(state)), call_(std::move(call)), function_(std::move(function)) {}

  void run(std::span<const TensorView> tensors) override {
    const Context::Scope scope(*state_->context);
    check_device_tensors(call_, tensors);
    function_(state_->stream, tensors);
  }

 private:
  std::shared_ptr<GpuState> state_;
  OperationCall call_;
  GpuFunction function_;
};

}  // namespace

KernelLaunch launch_of(const GpuKernel& kernel, size_t tensors) {
  const size_t pointers = tensors + (kernel.scratch_bytes > 0 ? 1 : 0);
  KernelLaunch launch;
  launch.function = kernel.name;
  launch.source =
      "#include \"device/arguments.cuh\"\n#include \"device/ptx/dependent_launch.cuh\"\n" +
      kernel.code + "\nusing Arguments = coda::device::KernelArguments<" +
      std::to_string(kernel.maps.size()) + ", " + std::to_string(pointers) + ", " +
      std::to_string(kernel.numbers.size()) +
      ">;\n\nextern \"C\" __global__ void __launch_bounds__(" + std::to_string(kernel.threads) +
      ", 1) " + kernel.name +
      "(const __grid_constant__ Arguments arguments) {\n"
      "  [[maybe_unused]] const auto p = [&](unsigned i) { return arguments.pointers[i]; };\n"
      "  [[maybe_unused]] const auto n = [&](unsigned i) { return arguments.numbers[i]; };\n" +
      (kernel.maps.empty() ? ""
                           : "  const auto m = [&](unsigned i) { return &arguments.maps[i]; };\n") +
      "  coda::device::launch_dependents();\n  coda::device::wait_for_predecessor();\n" +
      kernel.body + "}\n";
  for (const GpuTensorMap& map : kernel.maps) {
    launch.maps.push_back({.tensor = static_cast<int>(map.tensor),
                           .rows = map.rows,
                           .columns = map.cols,
                           .matrix_rows = map.matrix_rows,
                           .box_rows = map.box_rows,
                           .box_columns = map.box_cols});
  }
  // Behind the tensors, the scratch of the call.
  for (size_t i = 0; i < pointers; ++i) launch.pointers.push_back(static_cast<int>(i));
  launch.numbers = kernel.numbers;
  launch.grid = kernel.grid;
  launch.threads = kernel.threads;
  launch.shared_bytes = kernel.shared_bytes;
  launch.waits_for_predecessor = true;
  return launch;
}

void check_device_tensors(const OperationCall& call, std::span<const TensorView> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const OperationTensor& t = call.tensors[i];
    std::string why = why_unfit(t.dtype, {t.rows, t.cols}, tensors[i]);
    if (why.empty()) why = why_not_on_device(tensors[i]);
    call.check(why.empty(), "tensor '" + t.name + "' " + why);
  }
}

std::vector<KernelLaunch> lower_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                     const DimValues& sizes, const LowerOptions& options) {
  OperationCall prepared = operation_call(call, tensors, sizes, options.row_strides);
  prepared.gpu_target = options.target->name;
  prepared.multiprocessors = options.multiprocessors;
  const Operation& operation = find_operation(call.function);
  require(operation.gpu != nullptr,
          call.function + (operation.gpu_function == nullptr
                               ? ": the operation has no kernel for a GPU; register it with `gpu` "
                                 "or `gpu_function`"
                               : ": the operation's work on a GPU is a function, not text"));
  std::vector<KernelLaunch> launches;
  int64_t scratch_bytes = 0;
  for (const GpuKernel& kernel : operation.gpu(prepared)) {
    launches.push_back(launch_of(kernel, tensors.size()));
    scratch_bytes = std::max(scratch_bytes, kernel.scratch_bytes);
  }
  if (scratch_bytes > 0) {
    const int64_t words = ceil_div(scratch_bytes, int64_t{4});
    for (KernelLaunch& launch : launches) launch.scratch = {{DType::f32, 1, words, words}};
  }
  return launches;
}

std::unique_ptr<Kernel> make_function_kernel(std::shared_ptr<GpuState> state,
                                             const OperationCall& call, GpuFunction function) {
  return std::make_unique<FunctionKernel>(std::move(state), call, std::move(function));
}

}  // namespace coda::gpu
