// SPDX-License-Identifier: Apache-2.0
// Converts a model's graph to the graph that reads new tokens after earlier ones whose keys and
// values were cached. Works for any graph with causal attention, because only attention reads other
// tokens.
#pragma once

#include <memory>
#include <vector>

#include "coda/compile_request.h"
#include "coda/models.h"

namespace coda {

// The keys and values of all tokens, as attention reads them: "keys.0", "values.0", "keys.1", ...
// by layer. Empty where attention is not causal.
std::vector<NamedValue> keys_and_values(ModelGraph& model);

// The model for M tokens of one sequence, whose positions are inputs, behind "length" [1, 1]
// others. Those have rows of "past_keys.0" [P, as keys.0] and so on, in `storage`. It has logits
// and no loss.
std::unique_ptr<ModelGraph> with_past(const ModelGraph& model, DType storage);

}  // namespace coda
