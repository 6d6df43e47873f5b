// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: many gated MLPs, of which a router chooses a few for each token.
#pragma once

#include <string>

#include "coda/model_config.h"
#include "models/model_builder.h"

namespace coda {

// x [M, hidden] -> [M, hidden]: the sum of all experts of x, each times its weight for the row.
// Weights are the softmax of the router's product over all experts, and 0 where an expert is not
// among a row's largest (Shazeer et al. 2017, with the softmax first, as Mixtral has it).
//
// Dense: all experts are computed for all rows; with a weight of 0 they add nothing and get no
// gradient. Sparse, where ModelOptions::expert_rows says so: each is computed for the rows that
// chose it, which are gathered, and the first so many of them only, as in GShard (Lepikhin et al.
// 2020); the results are added up where they belong. The number of rows is fixed, so the products
// have shapes that do not depend on data. A row's weights stay as they are where one is left out.
// `layer` is how the names of the layer's parameters begin: "model.layers.0.".
Value mixture_of_experts(ModelBuilder& m, const Experts& experts, const std::string& layer, Value x,
                         int64_t hidden);

// Rows are rounded up to so many: a tile of a product.
constexpr int64_t kExpertTile = 64;
// See expert_rows_of.
int64_t expert_rows(const Experts& experts, double capacity, int64_t tokens);

// The numbers of weights of the router and all experts, and of those that a token is not
// multiplied by.
int64_t parameter_count(const Experts& experts, int64_t hidden);
int64_t unused_by_a_token(const Experts& experts, int64_t hidden);

// "8 experts of 96 (2 of a token)".
std::string description(const Experts& experts);

}  // namespace coda
