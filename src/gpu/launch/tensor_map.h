// SPDX-License-Identifier: Apache-2.0
// Descriptors for TMA: a rectangle of a row-major matrix, or a stack of matrices, moved in boxes.
// The swizzle is 64 bytes for boxes of that width, else 128. Made on the host without a GPU.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "gpu/launch/driver_api.h"

namespace coda::gpu {

struct Rectangle {
  DeviceAddress address = 0;  // of the first element
  DType dtype = DType::bf16;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;   // elements
  int64_t matrix_rows = 0;  // of a stack of matrices (TensorMapSpec); 0: one matrix

  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// Whether TMA can address the rectangle. TMA needs rows that start at multiples of 16 bytes; other
// rectangles must be copied first.
bool is_addressable(const Rectangle& rectangle);

// Throws Error with `subject` ("tensor 'x' of program 'p'") if the driver rejects the descriptor.
device::TensorMap encode_tensor_map(const Rectangle& rectangle, uint32_t box_rows,
                                    uint32_t box_columns, const std::string& subject);

}  // namespace coda::gpu
