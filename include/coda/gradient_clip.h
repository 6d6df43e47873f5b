// SPDX-License-Identifier: Apache-2.0
// Clips gradients by their global norm, as torch.nn.utils.clip_grad_norm_ does. The norm is summed
// over fixed blocks in fp64 and in a fixed order, so the bits do not depend on the number of
// threads.
#pragma once

#include <span>

#include "coda/api.h"

namespace CODA_API coda {

// The square root of the sum of squares of all elements. It is not finite if an element is not;
// then the step must be skipped.
double global_norm(std::span<const std::span<const float>> gradients);

// The factor that reduces the norm of the gradients to `largest`: 1 if the norm is already small
// enough or if `largest` is 0 (no clipping).
double clip_scale(double norm, double largest);

}  // namespace CODA_API coda
