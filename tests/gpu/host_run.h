// SPDX-License-Identifier: Apache-2.0
// Runs launches on the CPU (host_kernel.h) from float64 values, and compares with the meaning of
// their program. Every tensor lies between guards, with gaps between its rows, all filled with NaN,
// as is everything that is not an input.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "cpu/program_run.h"
#include "gpu/host_kernel.h"
#include "gpu/lower.h"
#include "program/evaluate.h"
#include "program/vocabulary.h"

namespace coda::gpu {

using tests::Values;

// Rows are `gap` elements further apart than they must be, and begin at multiples of `multiple`.
// The tensor begins `offset` elements behind a multiple of 16 bytes.
struct HostRows {
  int64_t gap = 0;
  int64_t multiple = 1;
  int64_t offset = 0;
};

class HostTensor {
 public:
  HostTensor(const TensorDecl& decl, const DimValues& sizes, HostRows rows)
      : decl_(decl), first_(kGuard + rows.offset) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    rows_ = shape.rows;
    cols_ = shape.cols;
    stride_ =
        cols_ == 1 ? 1 : (cols_ + rows.gap + rows.multiple - 1) / rows.multiple * rows.multiple;
    const int64_t count = first_ + rows_ * stride_ + kGuard;
    bytes_.resize(count * size_of(decl.dtype));
    for (int64_t i = 0; i < count; ++i) {
      write_element(decl.dtype, bytes_.data(), i, std::nan(""));
    }
  }

  void fill(const std::vector<double>& values) {
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      write_element(decl_.dtype, data(), i / cols_ * stride_ + i % cols_, values[i]);
    }
  }
  std::vector<double> values() {
    std::vector<double> result;
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      result.push_back(read_element(decl_.dtype, data(), i / cols_ * stride_ + i % cols_));
    }
    return result;
  }
  void check_guards(bool may_write_padding = false) {
    for (int64_t i = -kGuard; i < rows_ * stride_ + kGuard; ++i) {
      const bool is_inside = i >= 0 && i < rows_ * stride_;
      if (is_inside && (may_write_padding || i % stride_ < cols_)) continue;
      const double value = read_element(decl_.dtype, data(), i);
      ASSERT_TRUE(std::isnan(value) || !is_floating(decl_.dtype))
          << decl_.name << ": memory outside was written, at element " << i;
    }
  }
  void* data() { return bytes_.data() + first_ * size_of(decl_.dtype); }
  int64_t stride() const { return stride_; }

 private:
  static constexpr int64_t kGuard = 64;
  TensorDecl decl_;
  int64_t first_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  std::vector<char> bytes_;
};

// What the program stores.
inline Values run_on_host(const Program& program, const DimValues& sizes, const Values& inputs,
                          HostRows rows, LowerOptions options = {}) {
  std::vector<HostTensor> tensors;
  std::vector<void*> addresses;
  for (const TensorDecl& decl : program.tensors) {
    tensors.emplace_back(decl, sizes, rows);
    options.row_strides.push_back(tensors.back().stride());
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto found = inputs.find(program.tensors[i].name);
    if (found != inputs.end()) tensors[i].fill(found->second);
    addresses.push_back(tensors[i].data());
  }
  const std::vector<KernelLaunch> launches = lower(program, sizes, options);
  std::vector<int64_t> strides = options.row_strides;
  std::vector<unsigned> bytes;
  for (const TensorDecl& decl : program.tensors)
    bytes.push_back(static_cast<unsigned>(size_of(decl.dtype)));
  std::vector<std::vector<char>> scratch;
  for (const ScratchTensor& tensor : launches.at(0).scratch) {
    scratch.emplace_back(tensor.rows * tensor.row_stride * size_of(tensor.dtype), '\xff');
    addresses.push_back(scratch.back().data());
    strides.push_back(tensor.row_stride);
    bytes.push_back(static_cast<unsigned>(size_of(tensor.dtype)));
  }
  for (const KernelLaunch& launch : launches) HostKernel(launch).run(addresses, strides, bytes);
  std::set<int> stored;
  for (const Step& step : program.steps) {
    if (program::is_effect(step.kind())) stored.insert(step.tensor());
  }
  Values results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].check_guards(options.owns_padding);
    if (stored.contains(static_cast<int>(i))) {
      results[program.tensors[i].name] = tensors[i].values();
    }
  }
  return results;
}

// As on the CPU backend: an intermediate rounding to 16 bits may fall to the other side of a tie,
// and random programs subtract values that are nearly equal.
inline void expect_close(const Program& program, const DimValues& sizes, const Values& inputs,
                         const Values& results) {
  const Values reference = program::evaluate(program, sizes, inputs, {.round_stored = true});
  for (const TensorDecl& decl : program.tensors) {
    const auto expected = reference.find(decl.name);
    if (expected == reference.end()) continue;
    const double bound = 1e-3 + (decl.dtype == DType::bf16 ? 0x1p-9 : 0);
    EXPECT_LE(relative_error(results.at(decl.name), expected->second), bound) << decl.name << "\n"
                                                                              << text(program);
  }
}

}  // namespace coda::gpu
