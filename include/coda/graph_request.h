// SPDX-License-Identifier: Apache-2.0
// Builds the compile request for a graph that was read from text (coda/graph_text.h): its outputs
// and the gradients of its inputs.
#pragma once

#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/graph_text.h"

namespace CODA_API coda {

// Requests all outputs that the graph stores; matrices without a type are stored as fp32. With
// `with_gradients`, adds an input "grad_of_NAME" to the graph as the cotangent of each output, and
// requests the gradient "grad_to_NAME" of each input that an output depends on, except tables.
// Gradients of 16-bit inputs and outputs have the same 16-bit type. A name that is already taken
// gets a number appended. Throws Error if an operation has no derivative.
CompileRequest graph_request(NamedGraph& named, bool with_gradients);

// The storage type for matrices that the plan itself introduces: the 16-bit type that a GEMM of the
// graph reads, else fp32 (CompileOptions::storage).
DType usual_storage(const NamedGraph& named);

// The backward as a graph. It reads the graph's inputs and "grad_of_NAME", and stores
// "grad_to_NAME" for the inputs `wanted`, or for all that have a gradient. Throws Error if there is
// none.
NamedGraph gradient_graph(const NamedGraph& named, const std::vector<std::string>& wanted = {});

}  // namespace CODA_API coda
