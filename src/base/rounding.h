// SPDX-License-Identifier: Apache-2.0
// Numbers of blocks that hold a size, and their total size. Sizes are >= 0, block sizes > 0.
#pragma once

#include <cstdint>

namespace coda {

constexpr int64_t ceil_div(int64_t size, int64_t block) { return (size + block - 1) / block; }
constexpr int64_t round_up(int64_t size, int64_t block) { return ceil_div(size, block) * block; }

}  // namespace coda
