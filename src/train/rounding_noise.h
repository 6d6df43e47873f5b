// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding in an update. A weight or state that is stored as bf16 is rounded by a random
// number (Philox) that depends only on the seed, the training step, which of the parameter's
// tensors it is, and the element's place among all parameters. So the bits depend neither on the
// number of threads or processes nor on the shapes of tiles, and a resumed run has the same noise.
//
// The place is a row and a column: each parameter starts at a new row of kNoiseColumns elements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coda/optimizer.h"

namespace coda {

inline constexpr int64_t kNoiseColumns = 512;

// Tensors that a program with noise reads: a scalar of the training step, and [R] numbers of rows.
inline constexpr const char* kNoise = "noise";
inline constexpr const char* kNoiseRows = "noise_rows";

// Whether the optimizer stores weights or states as bf16.
bool has_noise(const Optimizer& optimizer);
// Adds the scalar kNoise if the optimizer has noise. Throws Error if it has more states than there
// are sequences of noise (3, and one for the weights).
Optimizer with_noise(Optimizer optimizer);
// The value of kNoise, a multiple of 4 below 2^24, so that fp32 has it and the next three numbers.
// It repeats after 2^22 steps.
double noise_of_step(uint64_t seed, int64_t step);

// The value of a tile [R, kNoiseColumns], rounded; tensor 0 is the weight, then come the states.
std::string rounded_stochastically(const std::string& value, int tensor);

// The first row of each parameter, and the number of all rows at the end. Throws Error beyond 2^24
// rows (8.6e9 elements), because fp32 does not have every larger number.
std::vector<int64_t> noise_rows(std::span<const int64_t> elements);

}  // namespace coda
