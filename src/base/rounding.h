// SPDX-License-Identifier: Apache-2.0
// How many blocks hold a size, and the size of them all; sizes are not negative, blocks above 0.
#pragma once

#include <cstdint>

namespace coda {

constexpr int64_t ceil_div(int64_t size, int64_t block) { return (size + block - 1) / block; }
constexpr int64_t round_up(int64_t size, int64_t block) { return ceil_div(size, block) * block; }

}  // namespace coda
