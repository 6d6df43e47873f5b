// SPDX-License-Identifier: Apache-2.0
// Descriptors for the bulk copy engine (TMA): a rectangle of a row-major matrix, moved in boxes
// with the swizzle of their width: 64 bytes, else 128. Made on the host, without the GPU.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "gpu/launch/driver_api.h"

namespace coda::gpu {

struct Rectangle {
  DeviceAddress address = 0;  // of its first element
  DType dtype = DType::bf16;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements

  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// The engine addresses 16 bytes at a time: where a rectangle and its rows do not start at multiples
// of them, it has to be copied to where they do.
bool is_addressable(const Rectangle& rectangle);

// Throws Error with `subject` ("tensor 'x' of program 'p'") if the driver refuses.
device::TensorMap encode_tensor_map(const Rectangle& rectangle, uint32_t box_rows,
                                    uint32_t box_columns, const std::string& subject);

}  // namespace coda::gpu
