// SPDX-License-Identifier: Apache-2.0
// Moves what recomputed layers save (their inputs) to the host's memory between the phases.
#pragma once

#include "coda/plan.h"

namespace coda {

// Replaces each saved tensor from which a layer is recomputed by two temporaries and adds its
// copies to Plan::host_copies. A copy to the host has the time from the tensor's last write until
// the next layer's input is written; a copy back has the time from the first read of the input of
// the layer whose backward runs before. So at most two such tensors exist in a phase at a time.
// The input of the layer whose backward is the first stays saved, and so do tensors with views and
// those that a loop over row blocks uses. If no tensor moves, a note of the plan says why.
void keep_layers_on_host(Plan& plan);

}  // namespace coda
