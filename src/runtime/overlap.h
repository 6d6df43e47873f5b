// SPDX-License-Identifier: Apache-2.0
// Whether the memory that a caller gives for two tensors is the same somewhere, gaps between rows
// excepted: what is written must not be another tensor's memory. Checked when memory is bound, not
// at each run.
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

// Throws Error naming two tensors that share memory, one of which is written.
void check_overlaps(std::vector<GivenTensor> tensors);

}  // namespace coda
