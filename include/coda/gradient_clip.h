// SPDX-License-Identifier: Apache-2.0
// Clipping of gradients by their global norm, as torch.nn.utils.clip_grad_norm_ does. The norm is a
// sum over fixed blocks, in fp64 and in a fixed order: the same bits for any number of threads.
#pragma once

#include <span>

#include "coda/api.h"

namespace CODA_API coda {

// sqrt of the sum of squares of all elements. Not finite if an element is not: then the step must
// not be made.
double global_norm(std::span<const std::span<const float>> gradients);

// What gradients are multiplied by so that their norm is at most `largest`: 1 if it is already, or
// if largest is 0 (no clipping).
double clip_scale(double norm, double largest);

}  // namespace CODA_API coda
