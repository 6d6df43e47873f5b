// SPDX-License-Identifier: Apache-2.0
// What the backward makes again rather than read it, by the names of `--recompute`
// (docs/memory.md).
#pragma once

#include <string_view>

#include "coda/api.h"
#include "coda/compile_request.h"

namespace CODA_API coda {

// Two of CompileOptions' fields.
struct Recompute {
  Objective objective = Objective::memory;
  int layers_run_again = 0;
};

// "none": what can be read faster is saved; "norms": all that takes no product is made again;
// "layer": so is a layer's forward; "layer:8": that of the first 8 layers. Throws Error for another
// name.
Recompute recompute_of(std::string_view name);

}  // namespace CODA_API coda
