// SPDX-License-Identifier: Apache-2.0
// Finds the inputs of a graph on which its outputs depend, and makes values for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/array.h"
#include "coda/backend.h"
#include "coda/compile_request.h"
#include "coda/graph_text.h"
#include "coda/program.h"
#include "coda/tensor.h"

namespace coda::measure {

using GraphValues = std::map<std::string, std::vector<double>>;

std::map<std::string, TensorDecl> inputs_of(const NamedGraph& named);

// Inputs whose values are indices: the limit of an index, and what has so many rows or columns.
struct IndexLimit {
  std::string of;
  Dim count;
};
std::map<std::string, IndexLimit> index_limits(const NamedGraph& named);

// Random inputs as for programs (random_inputs.h), but weight matrices have smaller values and
// indices are in range.
GraphValues random_graph_inputs(const NamedGraph& named, const DimValues& sizes, uint64_t seed);

// The approximate seconds of one evaluation in float64.
double evaluation_seconds(const NamedGraph& named, const DimValues& sizes);

// A compiled plan with its tensors on a backend.
struct GraphRun {
  std::map<std::string, Tensor> outputs;
  std::map<std::string, TensorDecl> decls;  // of the outputs
};
// The plan of all outputs, run once. `poison`: memory that a step forgets to write shows.
GraphRun run_plan_of(const NamedGraph& named, const DimValues& sizes, const GraphValues& inputs,
                     Backend& backend, bool poison);

}  // namespace coda::measure
