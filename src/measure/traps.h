// SPDX-License-Identifier: Apache-2.0
// Runs a program with special inputs and memory: zeros, huge and tiny inputs, infinity instead of
// NaN in the memory outside of tensors, results in the memory of inputs.
#pragma once

#include "coda/backend.h"
#include "coda/check.h"
#include "measure/guarded_run.h"

namespace coda::measure {

// Runs the program on the backend in all of these. `inputs` are those that `usual` was computed of;
// adds to the traps, notes and wrong traps of the result.
void check_traps(Backend& backend, const Program& program, const DimValues& sizes,
                 const TensorValues& inputs, const GuardedRun& usual, CheckedBackend& result);

}  // namespace coda::measure
