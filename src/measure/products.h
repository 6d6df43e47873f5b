// SPDX-License-Identifier: Apache-2.0
// The GEMMs of programs as a library would run them alone: the peer that a program's time is
// compared with.
#pragma once

#include <string>
#include <vector>

#include "coda/program.h"
#include "device/config.cuh"

namespace coda::measure {

struct ProductShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  device::OperandLayout layout = device::OperandLayout::tn;
  DType type = DType::bf16;    // of the first operand
  DType type_b = DType::bf16;  // of the second

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  std::string text() const;  // "16384 x 4096 x 2048 tn bf16", or "... tn e5m2 e4m3"

  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

// As few as can be, each as large as can be: products that share their first operand count as one
// over joined second operands, those that share their second as one over joined first ones, and K
// segments as one longer contraction. That is the strongest peer: a library user who has packed all
// weights.
std::vector<ProductShape> products_of(const Program& program, const DimValues& sizes);

// Of a program's tensors, each read or written once.
double moved_bytes(const Program& program, const DimValues& sizes);

}  // namespace coda::measure
