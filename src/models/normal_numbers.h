// SPDX-License-Identifier: Apache-2.0
// Numbers of a normal distribution as a pure function of (seed, stream, place), by Box and Muller
// in single precision. Their bits depend neither on threads nor on the processor: there are only
// additions, multiplications and roots, each rounded once.
#pragma once

#include <cstdint>
#include <span>

namespace coda {

// values[i] = mean + deviation * number i of the stream. No number is beyond 6.7 deviations, which
// one in 5e10 would be.
void fill_normal(uint64_t seed, uint64_t stream, float mean, float deviation,
                 std::span<float> values);

}  // namespace coda
