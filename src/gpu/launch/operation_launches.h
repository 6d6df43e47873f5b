// SPDX-License-Identifier: Apache-2.0
// Opaque calls on a GPU: launches of kernels that an operation provides as text, and operations
// that enqueue their own work.
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

// A kernel's text as a launch; its pointers are the call's tensors in order, then the call's
// scratch if the kernel has some.
KernelLaunch launch_of(const GpuKernel& kernel, size_t tensors);

// Throws Error naming the first tensor that differs from what the call was prepared for or is not
// in device memory.
void check_device_tensors(const OperationCall& call, std::span<const TensorView> tensors);

// `tensors`: declarations of the inputs, then of the outputs. A launch's pointers index this list,
// and so does LowerOptions::row_strides. Throws Error for an unknown operation, for one without
// kernels as text, and if its kernels reject the call.
std::vector<KernelLaunch> lower_call(const OpaqueCall& call, std::span<const TensorDecl> tensors,
                                     const DimValues& sizes, const LowerOptions& options);

// A kernel that calls an operation's function and checks its tensors at each run.
std::unique_ptr<Kernel> make_function_kernel(std::shared_ptr<GpuState> state,
                                             const OperationCall& call, GpuFunction function);

}  // namespace coda::gpu
