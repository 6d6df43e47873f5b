// SPDX-License-Identifier: Apache-2.0
// Finds where the layers of a graph start: the values to save if the backward recomputes layers.
#pragma once

#include "coda/compile_request.h"
#include "rewrite/recompute_layers.h"

namespace coda {

// Cuts equal consecutive layers where the fewest bytes cross: at the residual stream, after the
// largest GEMM if several places are equal. Empty if there are no two such layers.
LayerStarts find_layer_starts(const Graph& graph, const CompileRequest& request,
                              const DimValues& sizes);

}  // namespace coda
