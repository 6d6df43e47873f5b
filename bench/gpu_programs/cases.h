// SPDX-License-Identifier: Apache-2.0
// The measured cases: programs of a Transformer block at the sizes of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/dim.h"

namespace coda::gpu_programs {

struct Case {
  std::string row;   // "residual_norm, K = I"
  std::string file;  // of programs/, without .coda
  int64_t hidden = 0;
  int64_t tokens = 0;
  DimValues sizes;
};

struct Width {
  int64_t hidden = 0;
  int64_t mlp = 0;
};
// 2048, 4096 and 8192 with MLPs of 5632, 11008 and 22016.
const std::vector<Width>& widths();

// All programs for `tokens` rows and all widths, with heads of 128 and vocabularies of 32768 and
// 128256 (not at 8192).
std::vector<Case> block_cases(int64_t tokens);

// Products with M = N = K = 2048, 4096 and 8192, where N is the product's columns.
std::vector<Case> square_cases();

}  // namespace coda::gpu_programs
