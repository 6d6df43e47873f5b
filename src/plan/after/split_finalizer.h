// SPDX-License-Identifier: Apache-2.0
// A finalizer in two: what it computes of each row by itself, and what needs all rows (a loss's
// mean), so that the first can run for a chunk of rows.
#pragma once

#include <string>
#include <vector>

#include "coda/program.h"

namespace coda {

struct FinalizerParts {
  Program of_rows;                   // no steps: it has no such part
  Program rest;                      // the same
  std::vector<TensorDecl> crossing;  // vectors that the first must store for the second besides
};

// `symbol`: of the rows.
FinalizerParts split_finalizer(const Program& finalizer, const std::string& symbol);

}  // namespace coda
