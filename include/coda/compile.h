// SPDX-License-Identifier: Apache-2.0
// From a graph to a plan: sink scales, differentiate, merge GEMMs, choose what is saved, partition
// into programs; a cost model decides between the legal choices.
#pragma once

#include <string>
#include <vector>

#include "coda/api.h"
#include "coda/compile_request.h"
#include "coda/plan_cost.h"

namespace CODA_API coda {

// One choice that the cost model compared, for `coda explain`.
struct Alternative {
  std::string choice;  // "fold -h- pin u-d"
  double seconds = 0;
  double moved_bytes = 0;
  double saved_bytes = 0;
  double loop_bytes = 0;  // the most that a loop over blocks of rows holds besides
  bool chosen = false;
};

// A program that loads one parameter of a plan (or a view of some of its columns) and stores inputs
// of the plan.
struct ParameterCopy {
  std::string parameter;  // the whole parameter, not the view
  Program program;
};

struct Compiled {
  Plan plan;
  std::vector<Alternative> alternatives;
  std::vector<float> first_scales{};              // of the 8-bit operands; empty if there are none
  std::vector<ParameterCopy> parameter_copies{};  // see CompileOptions::copies_are_given
};

// Throws Error if an output depends on an input without a shape, or if a gradient is requested for
// a value that is not an input of the graph.
Compiled compile(const Graph& graph, const CompileRequest& request, const CompileOptions& options);

}  // namespace CODA_API coda
