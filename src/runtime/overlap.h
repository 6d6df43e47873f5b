// SPDX-License-Identifier: Apache-2.0
// Checks whether the memory of two tensors overlaps, ignoring gaps between rows: a written tensor
// must not share memory with another. Checked when memory is bound, not at each run.
#pragma once

#include <string_view>
#include <vector>

#include "coda/tensor.h"

namespace coda {

bool overlap(const TensorView& a, const TensorView& b);

struct GivenTensor {
  std::string_view name;
  TensorView view;
  bool written = false;
};

// Throws Error naming two tensors that share memory, if one of them is written.
void check_overlaps(std::vector<GivenTensor> tensors);

}  // namespace coda
