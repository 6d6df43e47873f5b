// SPDX-License-Identifier: Apache-2.0
// The types that tensor cores multiply, and how the copy engine knows a type: one row each, which
// is all that tells them apart outside of device/.
#pragma once

#include <cstdint>
#include <string_view>

#include "coda/dtype.h"
#include "device/config.cuh"

namespace coda::hopper {

struct OperandType {
  DType type;
  device::Element element;
  std::string_view text;  // in a kernel: "Element::bf16"
};

// Null: tensor cores do not multiply it.
const OperandType* find_operand_type(DType type);
const OperandType& operand_type(device::Element element);

// The copy engine addresses 16 bytes at a time.
inline constexpr int64_t kCopyBytes = 16;

// A CUtensorMapDataType.
int tensor_map_type(DType type);

}  // namespace coda::hopper
