// SPDX-License-Identifier: Apache-2.0
// Memory is reused inside a step: a program that loads a tile, and is the last to read that tensor,
// may store a result of the same shape and type over it. So logits become their own gradients, and
// the largest tensor of a training step exists once.
#pragma once

#include "coda/plan.h"

namespace coda {

// `overwrite_saved`: also tensors that the forward saved; the backward can then run only once for
// each forward. A sum that a loop over row chunks of the forward made then lies in the caller's
// gradient from the start.
void reuse_in_place(Plan& plan, bool overwrite_saved);

}  // namespace coda
