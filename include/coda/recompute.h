// SPDX-License-Identifier: Apache-2.0
// What the backward recomputes instead of reading it, by the names of `--recompute`
// (docs/memory.md).
#pragma once

#include <string_view>

#include "coda/api.h"
#include "coda/compile_request.h"

namespace CODA_API coda {

// The corresponding fields of CompileOptions.
struct Recompute {
  Objective objective = Objective::memory;
  int recomputed_layers = 0;
};

// "none": save what is faster to read than to recompute; "norms": recompute everything that needs
// no GEMM; "layer": also recompute each layer's forward; "layer:8": only that of the first 8
// layers. Throws Error for another name.
Recompute recompute_of(std::string_view name);

}  // namespace CODA_API coda
