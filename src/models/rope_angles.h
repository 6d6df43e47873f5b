// SPDX-License-Identifier: Apache-2.0
// The angles of RoPE, plain or stretched for contexts longer than the first one.
#pragma once

#include <vector>

#include "coda/model_config.h"

namespace coda {

struct RopeAngles {
  std::vector<double> steps;  // of the pairs of a head, [head_dim / 2], radians a position
  double factor = 1;          // of cosines and sines
};

// For sequences of up to `positions` tokens. Layers with the window may have a base of their own.
RopeAngles rope_angles(const LlamaConfig& config, int64_t positions, bool windowed = false);

}  // namespace coda
