// SPDX-License-Identifier: Apache-2.0
// The angles of RoPE, plain or scaled for contexts longer than in training.
#pragma once

#include <vector>

#include "coda/model_config.h"

namespace coda {

struct RopeAngles {
  std::vector<double> steps;  // of the pairs of a head that turn, radians a position
  double factor = 1;          // of cosines and sines
};

// Channels of a head that turn.
int64_t turning_channels(const LlamaConfig& config);

// For sequences of `length` tokens. Layers with the window may have a base of their own.
RopeAngles rope_angles(const LlamaConfig& config, int64_t length, bool windowed = false);

}  // namespace coda
