// SPDX-License-Identifier: Apache-2.0
// What is asked of programs that were lifted to a graph (`coda explain`).
#pragma once

#include "coda/compile.h"
#include "program/lift.h"

namespace coda {

// Outputs: all that the programs store; what is stored over what was read is "NAME.stored".
// `with_gradients`: each output is seeded with "grad_of_NAME", and the gradients "grad_to_NAME" of
// all inputs that outputs depend on are asked for.
CompileRequest program_request(Graph& graph, const program::LiftedTensors& tensors,
                               bool with_gradients);

}  // namespace coda
