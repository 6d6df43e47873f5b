// SPDX-License-Identifier: Apache-2.0
// Pieces of the CUDA text of this folder's kernels.
#pragma once

#include <cstdint>
#include <string>

#include "base/rounding.h"
#include "coda/operation.h"

namespace coda {

// device/element.cuh's name of the tensor's type; Error if it is not one of f32, bf16, f16.
inline std::string element_name(const OperationCall& call, size_t tensor) {
  call.check_type(tensor, {DType::f32, DType::bf16, DType::f16});
  return "Element::" + std::string(name_of(call.tensors[tensor].dtype));
}

inline uint32_t row_stride(const OperationCall& call, size_t tensor) {
  return static_cast<uint32_t>(call.tensors[tensor].row_stride);
}

// Of a launch.
inline uint32_t launch_blocks(int64_t size, int64_t block) {
  return static_cast<uint32_t>(ceil_div(size, block));
}

}  // namespace coda
