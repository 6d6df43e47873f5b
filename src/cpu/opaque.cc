// SPDX-License-Identifier: Apache-2.0
// Converts the declarations and asks the operation for its CPU kernel.
#include "cpu/opaque.h"

#include <string>
#include <utility>

#include "coda/error.h"
#include "coda/operation.h"
#include "runtime/operation_call.h"

namespace coda::cpu {
namespace {

class OperationKernel : public Kernel {
 public:
  explicit OperationKernel(CpuKernel kernel) : kernel_(std::move(kernel)) {}
  void run(std::span<const TensorView> tensors) override { kernel_(tensors); }

 private:
  CpuKernel kernel_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_opaque(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                       const DimValues& sizes, int threads) {
  require(threads > 0, call.function + ": the number of threads must be positive, not " +
                           std::to_string(threads));
  const OperationCall prepared = operation_call(call, tensors, sizes);
  const Operation& operation = find_operation(call.function);
  require(operation.cpu != nullptr,
          call.function + ": the operation has no kernel for the CPU; register it with `cpu`");
  return std::make_unique<OperationKernel>(operation.cpu(prepared, threads));
}

}  // namespace coda::cpu
