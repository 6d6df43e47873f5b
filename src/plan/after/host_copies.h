// SPDX-License-Identifier: Apache-2.0
// Moves what recomputed layers save (their inputs) to the host's memory between the phases.
#pragma once

#include "coda/plan.h"

namespace coda {

// Replaces each saved input of a recomputed layer by two temporaries, one of the forward and one of
// the backward, and adds the copies between them and the host's memory to Plan::host_copies.
//
// The copy to the host begins after the input's last write, and must be complete before the input
// of the next layer is written. The copy back begins when the backward first reads the input of the
// layer above, and must be complete before this layer's backward reads it. So a phase never holds
// more than two such inputs.
//
// These stay saved: the input of the last recomputed layer, which the backward reads first; tensors
// that have views; and tensors that a loop over row blocks uses. If no input moves, a note of the
// plan says why.
void keep_layers_on_host(Plan& plan);

}  // namespace coda
