// SPDX-License-Identifier: Apache-2.0
// device/matrix_move.cuh on a CPU: only the names that elements.cuh mentions.
#pragma once

#include "device/types.cuh"

namespace coda::device {

enum class Element { bf16, fp16 };
template <Element kElement>
u32 pack(float low, float high);
template <Element kElement>
void unpack(u32 packed, float& low, float& high);

}  // namespace coda::device
