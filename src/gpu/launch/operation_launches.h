// SPDX-License-Identifier: Apache-2.0
// Opaque calls on a GPU: the kernels that their operations give as text, as launches; and those
// that enqueue their work themselves.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "coda/operation.h"
#include "coda/plan.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/launch/launched_kernel.h"
#include "gpu/legalise/lower_options.h"

namespace coda::gpu {

// A kernel's text as a launch whose pointers are the call's tensors in their order.
KernelLaunch launch_of(const GpuKernel& kernel, size_t tensors);

// Throws Error that names the first tensor which is not as the call was prepared for, or lies
// elsewhere than on the device.
void check_device_tensors(const OperationCall& call, std::span<const TensorView> tensors);

// `tensors`: declarations of the inputs, then of the outputs; a launch's pointers index them, as
// LowerOptions::row_strides does. Throws Error for an operation that is not known or has no kernels
// as text, and for a call that its kernels refuse.
std::vector<KernelLaunch> lower_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                     const DimValues& sizes, const LowerOptions& options);

// A kernel that calls a function of an operation. The tensors that it is run with are checked.
std::unique_ptr<Kernel> make_function_kernel(std::shared_ptr<GpuState> state,
                                             const OperationCall& call, GpuFunction function);

}  // namespace coda::gpu
