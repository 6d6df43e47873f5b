// SPDX-License-Identifier: Apache-2.0
// The table of element types, with all their properties outside of device/.
#pragma once

#include <cstdint>

#include "coda/dtype.h"
#include "device/types.cuh"

namespace coda::gpu {

struct ElementRow {
  DType type;
  device::Element element;  // the device's name for it
  int tensor_map_type;      // a CUtensorMapDataType
};

const ElementRow& element_row(DType type);
const ElementRow& element_row(device::Element element);

bool is_operand(DType type);  // tensor cores multiply it
bool is_16_bits(DType type);  // two fit into a register, and a staging ring can hold them

// TMA addresses memory in units of 16 bytes.
inline constexpr int64_t kCopyBytes = 16;

}  // namespace coda::gpu
