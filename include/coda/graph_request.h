// SPDX-License-Identifier: Apache-2.0
// What is asked of the compiler for a graph that was read (coda/graph_text.h): its outputs, and the
// gradients of its inputs.
#pragma once

#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/graph_text.h"

namespace CODA_API coda {

// Outputs: all that the graph stores, matrices without a type in fp32. `with_gradients`: each is
// seeded with an input "grad_of_NAME", which is added to the graph, and the gradients
// "grad_to_NAME" of all inputs but tables that outputs depend on are asked for. What the graph
// stores in 16 bits has its gradient in that type, and so have inputs. Names that are taken get a
// number. Throws Error where something has no derivative (an operation without one).
CompileRequest graph_request(NamedGraph& named, bool with_gradients);

// In what a plan stores the matrices that it adds: the 16 bits that a product of the graph reads,
// else fp32 (CompileOptions::storage).
DType usual_storage(const NamedGraph& named);

// The backward as a graph: it stores "grad_to_NAME", of the inputs `wanted` or of all that have a
// gradient, and reads the graph's inputs and "grad_of_NAME". Throws Error where there is none.
NamedGraph gradient_graph(const NamedGraph& named, const std::vector<std::string>& wanted = {});

}  // namespace CODA_API coda
