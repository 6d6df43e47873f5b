// SPDX-License-Identifier: Apache-2.0
// Compiles graphs from text (coda/graph_text.h), runs their plans on given arrays and compares them
// with float64. Used by `coda run` and `coda check`.
#pragma once

#include <set>
#include <string>

#include "coda/api.h"
#include "coda/check.h"
#include "coda/graph_text.h"
#include "coda/run_programs.h"

namespace CODA_API coda {

// The symbols in the shapes of values and in the sizes of calls that outputs depend on.
std::set<std::string> symbols_of(const NamedGraph& named);

// Derives the values of symbols from the shapes of the arrays, as for programs (coda/compare.h).
// Throws Error in the same cases, and for a symbol that no input has (the tokens of a sequence)
// unless it is in `known`.
DimValues sizes_of_inputs(const NamedGraph& named, const Arrays& inputs,
                          const DimValues& known = {});

// Compiles the graph for the backend and runs it. Returns the stored tensors. Throws Error for an
// index out of range, and if the backend rejects the plan.
RunResult run_graph(const NamedGraph& named, const DimValues& sizes, const Arrays& inputs,
                    Backend& backend);

// Compares the compiled plan with the graph in float64 on random inputs: first the plan's programs
// in float64 ("plan"), then on the backends. `bound` is the error that evaluations with random fp32
// perturbations and rounding to the stored type predict. Throws Error as check_program.
CheckReport check_graph(const NamedGraph& named, const DimValues& sizes,
                        const CheckOptions& options = {});

// Compares the derived backward with finite differences, as check_backward for programs.
BackwardReport check_backward(const NamedGraph& named, const DimValues& sizes, uint64_t seed = 1);

}  // namespace CODA_API coda
