// SPDX-License-Identifier: Apache-2.0
// device/sm90/ptx/registers.cuh on a CPU, which has as many as a kernel wants.
#pragma once

#include "device/types.cuh"

namespace coda::device {

template <u32 kRegisters>
void release_registers() {}
template <u32 kRegisters>
void claim_registers() {}

}  // namespace coda::device
