// SPDX-License-Identifier: Apache-2.0
// Splits a finalizer into the part that works on each row separately and the part that needs all
// rows (a loss's mean), so that the first part can run for a block of rows.
#pragma once

#include <string>
#include <vector>

#include "coda/program.h"

namespace coda {

struct FinalizerParts {
  Program of_rows;                   // without steps if there is no such part
  Program rest;                      // without steps if there is no such part
  std::vector<TensorDecl> crossing;  // vectors that the first part also stores
};

// `symbol`: the size symbol of the rows.
FinalizerParts split_finalizer(const Program& finalizer, const std::string& symbol);

}  // namespace coda
