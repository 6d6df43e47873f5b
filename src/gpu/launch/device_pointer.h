// SPDX-License-Identifier: Apache-2.0
// Checks that memory given by a caller is on the GPU and large enough. The driver knows the size
// only of plain allocations; memory from pools or mapped in pieces cannot be checked and is
// accepted.
#pragma once

#include <string>

#include "coda/tensor.h"

namespace coda::gpu {

// Empty if the memory looks right; else "but ..., Remedy: ...", to be appended to a description of
// the tensor.
std::string why_not_on_device(const TensorView& view);

}  // namespace coda::gpu
