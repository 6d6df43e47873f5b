// SPDX-License-Identifier: Apache-2.0
// Expresses RoPE of the first channels of each head as RoPE of whole heads. The rows of the weights
// of q and k are gathered in another order before the GEMM, so that the rotated channels form pairs
// as usual. Channels that are not rotated have the angle 0. Scores do not depend on the order of
// channels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/builders.h"
#include "models/model_builder.h"
#include "models/rope_angles.h"

namespace coda {

// Adds the rows of a head, which begins at row `first`, in the order in which they are multiplied.
void add_turning_head(int64_t first, int64_t head_dim, int64_t rotary_dim,
                      std::vector<int32_t>& order);
// Adds `count` rows from `first` on, in their order.
void add_rows(int64_t first, int64_t count, std::vector<int32_t>& order);

// Tables [positions, head_dim / 2] called NAMEcos and NAMEsin: the angles, and 0 for the pairs
// behind them.
RopeTables rope_tables(ModelBuilder& m, const std::string& name, const RopeAngles& angles,
                       int64_t positions, int64_t head_dim);

}  // namespace coda
