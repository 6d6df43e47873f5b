// SPDX-License-Identifier: Apache-2.0
// What is measured: programs of a Transformer block at the sizes of a model, 16384 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/dim.h"

namespace coda::hopper_programs {

struct Case {
  std::string row;   // "residual_norm, K = I"
  std::string file;  // of programs/
  int64_t hidden = 0;
  DimValues sizes;
};

// For hidden sizes 2048, 4096 and 8192 with heads of 128, MLP sizes 5632, 11008 and 22016, and
// vocabularies of 32768 and 128256 (not at 8192).
std::vector<Case> all_cases();

}  // namespace coda::hopper_programs
