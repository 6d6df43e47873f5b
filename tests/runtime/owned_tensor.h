// SPDX-License-Identifier: Apache-2.0
// A tensor that owns its memory, for tests: any storage type, optional gap between rows, seeded
// content. The gaps hold a guard value that a test can check.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/relative_error.h"
#include "coda/program.h"
#include "coda/tensor.h"
#include "runtime/values.h"

namespace coda {

class OwnedTensor {
 public:
  OwnedTensor(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        bytes_(static_cast<size_t>(rows * stride_ * size_of(dtype)), std::byte{0x55}) {}

  TensorView view() { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  TensorDecl decl(const std::string& name) const { return {name, Shape{rows_, cols_}, dtype_}; }

  std::vector<double> values() { return read_values(view()); }
  void set(std::span<const double> values) { write_values(values, view()); }
  void set(double value) { set(std::vector<double>(static_cast<size_t>(rows_ * cols_), value)); }
  OwnedTensor& randomise(uint64_t seed, double deviation = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, deviation);
    std::vector<double> values(static_cast<size_t>(rows_ * cols_));
    for (double& v : values) v = normal(random);
    set(values);
    return *this;
  }
  // Every byte, the gaps too.
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<std::byte> bytes_;
};

}  // namespace coda
