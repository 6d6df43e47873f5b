// SPDX-License-Identifier: Apache-2.0
// Pieces of the CUDA text of this folder's kernels.
#pragma once

#include <cstdint>
#include <string>

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

inline uint32_t ceil_div(int64_t a, int64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

}  // namespace coda
