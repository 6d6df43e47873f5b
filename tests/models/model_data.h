// SPDX-License-Identifier: Apache-2.0
// Inputs of a model's graph for the reference evaluator: tables, positions, and whatever parameters
// are given.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coda/dim.h"
#include "coda/models.h"

namespace coda {

using Inputs = std::map<std::string, std::vector<double>>;

// Positions 0 ... sequence - 1 for each sequence of the batch, and the model's own tables.
inline Inputs fixed_inputs(const ModelGraph& model, int64_t tokens, int64_t sequence) {
  Inputs inputs;
  for (const ModelTable& t : model.tables) inputs[t.name].assign(t.values.begin(), t.values.end());
  for (int64_t i = 0; i < tokens; ++i)
    inputs["positions"].push_back(static_cast<double>(i % sequence));
  return inputs;
}

}  // namespace coda
