// SPDX-License-Identifier: Apache-2.0
// The types of elements: one row each, which is all that tells them apart outside of device/.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "device/types.cuh"

namespace coda::gpu {

struct ElementRow {
  DType type;
  device::Element element;  // by the same name
  int tensor_map_type;      // a CUtensorMapDataType
};

const ElementRow& element_row(DType type);
const ElementRow& element_row(device::Element element);

bool is_operand(DType type);  // tensor cores multiply it
bool is_16_bits(DType type);  // two share a register, and a staging ring holds it

// The copy engine addresses 16 bytes at a time.
inline constexpr int64_t kCopyBytes = 16;

}  // namespace coda::gpu
