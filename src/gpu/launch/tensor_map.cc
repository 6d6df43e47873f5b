// SPDX-License-Identifier: Apache-2.0
// Encodes descriptors through the driver.
#include "gpu/launch/tensor_map.h"

#include <algorithm>

#include "base/rounding.h"
#include "coda/error.h"
#include "gpu/target/element.h"

namespace coda::gpu {
namespace {

constexpr int kSwizzle64 = 2;
constexpr int kSwizzle128 = 3;
// A wider promotion would read cache lines that the neighbouring SM requests anyway; measured: a
// tenth more traffic between SMs and L2.
constexpr int kPromoteL2To128 = 2;

// The driver requires a pitch even for a single row.
int64_t pitch_bytes(const Rectangle& rectangle) {
  const int64_t row = rectangle.columns * size_of(rectangle.dtype);
  return rectangle.rows == 1 ? round_up(row, kCopyBytes)
                             : rectangle.row_stride * size_of(rectangle.dtype);
}

}  // namespace

bool is_addressable(const Rectangle& rectangle) {
  return rectangle.address % kCopyBytes == 0 && pitch_bytes(rectangle) % kCopyBytes == 0;
}

device::TensorMap encode_tensor_map(const Rectangle& rectangle, uint32_t box_rows,
                                    uint32_t box_columns, const std::string& subject) {
  device::TensorMap map;
  const bool is_stack = rectangle.matrix_rows != 0;
  const int64_t rows = is_stack ? rectangle.matrix_rows : rectangle.rows;
  const int64_t matrices = is_stack ? rectangle.rows / rows : 1;
  const uint64_t sizes[3] = {static_cast<uint64_t>(rectangle.columns), static_cast<uint64_t>(rows),
                             static_cast<uint64_t>(matrices)};
  const auto row_bytes = static_cast<uint64_t>(pitch_bytes(rectangle));
  const uint64_t pitch[2] = {row_bytes, row_bytes * sizes[1]};
  const uint32_t box[3] = {box_columns, box_rows, 1};
  const uint32_t element_strides[3] = {1, 1, 1};
  const int swizzle = box_columns * size_of(rectangle.dtype) == 64 ? kSwizzle64 : kSwizzle128;
  // The driver's other calls take a device address as an integer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* address = reinterpret_cast<void*>(rectangle.address);
  check_driver(driver().tensor_map_encode_tiled(&map, element_row(rectangle.dtype).tensor_map_type,
                                                is_stack ? 3 : 2, address, sizes, pitch, box,
                                                element_strides, 0, swizzle, kPromoteL2To128, 0),
               "describing to the copy engine ", subject);
  return map;
}

}  // namespace coda::gpu
