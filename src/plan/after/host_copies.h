// SPDX-License-Identifier: Apache-2.0
// Moves what recomputed layers save (their inputs) to the host's memory between the phases.
#pragma once

#include "coda/plan.h"

namespace coda {

// Replaces each saved input of a recomputed layer by two temporaries, one of the forward and one of
// the backward, and adds the copies between them and the host's memory to Plan::host_copies.
//
// In the forward, an input is copied to the host after its last write, and the copy ends before the
// input of the next layer is written. In the backward, the input of layer i is copied back during
// the backward of layer i + 1, and the copy ends before the backward of layer i reads it. So at
// most two of these inputs are on the GPU at a time.
//
// These stay saved: the input of the last recomputed layer, which the backward reads first; tensors
// that have views; and tensors that a loop over row blocks uses. If no input moves, a note of the
// plan says why.
void keep_layers_on_host(Plan& plan);

}  // namespace coda
