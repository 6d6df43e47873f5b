// SPDX-License-Identifier: Apache-2.0
// The peer: cuBLAS's GEMM of the same shape, layouts and types, one candidate for each of the first
// 16 algorithms that its heuristics propose.
#pragma once

#include <functional>
#include <vector>

#include "coda/tensor.h"
#include "device/config.cuh"
#include "gpu/launch/driver_api.h"

namespace coda::measure {

// Matrices on the device as they lie in memory (transposed operands too): in 16 bits, or operands
// in 8 and an output in 16.
struct GemmOperands {
  TensorView a;
  TensorView b;
  TensorView out;
};

// Each function enqueues out = op(a) op(b) of one set. The sets have the same shapes and strides
// and must outlive the functions. `fast_accumulation`: of 8-bit products, summed by the tensor
// cores alone. Throws Error if cuBLAS has none.
std::vector<std::function<void(unsigned set)>> cublas_algorithms(
    const std::vector<GemmOperands>& sets, device::OperandLayout layout, gpu::DriverHandle stream,
    bool fast_accumulation = false);

}  // namespace coda::measure
