// SPDX-License-Identifier: Apache-2.0
// The table itself.
#include "gpu/target/element.h"

#include "coda/error.h"
#include "device/config.cuh"

namespace coda::gpu {
namespace {

using device::Element;

constexpr ElementRow kRows[] = {
    {DType::f32, Element::f32, 7},   {DType::bf16, Element::bf16, 9},
    {DType::f16, Element::f16, 6},   {DType::f64, Element::f64, 8},
    {DType::i32, Element::i32, 3},   {DType::e4m3, Element::e4m3, 0},
    {DType::e5m2, Element::e5m2, 0}, {DType::u8, Element::u8, 0},
};

}  // namespace

const ElementRow& element_row(DType type) {
  for (const ElementRow& row : kRows) {
    if (row.type == type) return row;
  }
  throw InternalError("a type without a row");
}

const ElementRow& element_row(Element element) {
  for (const ElementRow& row : kRows) {
    if (row.element == element) return row;
  }
  throw InternalError("an element without a row");
}

bool is_operand(DType type) { return device::is_operand(element_row(type).element); }
bool is_16_bits(DType type) { return device::is_16_bits(element_row(type).element); }

}  // namespace coda::gpu
