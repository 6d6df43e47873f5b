// SPDX-License-Identifier: Apache-2.0
// Compiles graphs that were read (coda/graph_text.h), runs their plans on given arrays and holds
// them against float64: what `coda run` and `coda check` do with a graph.
#pragma once

#include <set>
#include <string>

#include "coda/api.h"
#include "coda/check.h"
#include "coda/graph_text.h"
#include "coda/run_programs.h"

namespace CODA_API coda {

// Symbols of its values' shapes and of what operations are called with, as far as outputs reach.
std::set<std::string> symbols_of(const NamedGraph& named);

// The sizes that the arrays' shapes give the symbols, as those of programs (coda/compare.h). Throws
// Error as that does, and for a size that no input has (the tokens of a sequence) and that is not
// `known`.
DimValues sizes_of_inputs(const NamedGraph& named, const Arrays& inputs,
                          const DimValues& known = {});

// What the graph stores, by the plan that is compiled for the backend. Throws Error for an index
// outside of what it indexes, and where the backend does not take the plan.
RunResult run_graph(const NamedGraph& named, const DimValues& sizes, const Arrays& inputs,
                    Backend& backend);

// The compiled plan on random inputs against the graph in float64: its programs in float64
// ("plan"), then the backends. `bound` is the error that evaluations with random errors of fp32
// predict, and that rounding to the stored type makes. Throws Error as check_program.
CheckReport check_graph(const NamedGraph& named, const DimValues& sizes,
                        const CheckOptions& options = {});

// The derived backward against finite differences, as check_backward of programs.
BackwardReport check_backward(const NamedGraph& named, const DimValues& sizes, uint64_t seed = 1);

}  // namespace CODA_API coda
