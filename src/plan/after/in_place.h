// SPDX-License-Identifier: Apache-2.0
// Reuses memory inside a step: a program that loads a tile and is the last reader of that tensor
// may store a result of the same shape and type over it. So logits become their own gradients, and
// the largest tensor of a training step exists only once.
#pragma once

#include "coda/plan.h"

namespace coda {

// `overwrite_saved`: also overwrite tensors that the forward saved; then each forward allows only
// one backward. A sum that a loop over row blocks of the forward computes is then in the caller's
// gradient from the start.
void reuse_in_place(Plan& plan, bool overwrite_saved);

}  // namespace coda
