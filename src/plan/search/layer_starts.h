// SPDX-License-Identifier: Apache-2.0
// Where the layers of a graph start: what the backward keeps if it runs them again.
#pragma once

#include "coda/compile_request.h"
#include "rewrite/run_again.h"

namespace coda {

// Of equal layers in a row, cut where the fewest bytes cross from one to the next: at the residual
// stream, behind the largest product where several places are as good. Empty where there are not
// two such layers.
LayerStarts find_layer_starts(const Graph& graph, const CompileRequest& request,
                              const DimValues& sizes);

}  // namespace coda
