// SPDX-License-Identifier: Apache-2.0
#include "hopper/arch/element.h"

#include "coda/error.h"

namespace coda::hopper {
namespace {

constexpr OperandType kOperandTypes[] = {
    {DType::bf16, device::Element::bf16, "Element::bf16"},
    {DType::f16, device::Element::fp16, "Element::fp16"},
};

}  // namespace

const OperandType* find_operand_type(DType type) {
  for (const OperandType& row : kOperandTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

const OperandType& operand_type(device::Element element) {
  for (const OperandType& row : kOperandTypes) {
    if (row.element == element) return row;
  }
  throw InternalError("an element that is no operand's");
}

int tensor_map_type(DType type) {
  switch (type) {
    case DType::i32: return 3;
    case DType::f16: return 6;
    case DType::f32: return 7;
    case DType::f64: return 8;
    case DType::bf16: return 9;
  }
  throw InternalError("a tensor map of an unknown type");
}

}  // namespace coda::hopper
