// SPDX-License-Identifier: Apache-2.0
// Whether memory that a caller gives is the GPU's, and large enough: of what was allocated plainly
// the driver knows where it ends. Memory of pools, and what is mapped piece by piece, is taken on
// trust.
#pragma once

#include <string>

#include "coda/tensor.h"

namespace coda::gpu {

// "but ..., Remedy: ...", to stand behind what the tensor is. Empty if nothing is known against it.
std::string why_not_on_device(const TensorView& view);

}  // namespace coda::gpu
