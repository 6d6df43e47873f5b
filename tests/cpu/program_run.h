// SPDX-License-Identifier: Apache-2.0
// Runs a program on a backend from float64 values: every tensor lies between guards and has gaps
// between its rows, all filled with NaN; what is not an input starts as NaN. So that reading or
// writing outside, or not writing at all, shows in the results or is found here.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/relative_error.h"
#include "base/stored_element.h"
#include "coda/backend.h"
#include "coda/program.h"
#include "program/step_table.h"

namespace coda::tests {

using Values = std::map<std::string, std::vector<double>>;

// Elements between rows: at least `gap`, and rows start at multiples of `multiple` elements, behind
// the first `offset`.
struct RowGaps {
  int64_t gap = 3;
  int64_t multiple = 1;
  int64_t offset = 0;
};

// Memory of one tensor.
class GuardedTensor {
 public:
  GuardedTensor(const TensorDecl& decl, const DimValues& sizes, const std::vector<double>* values,
                RowGaps gaps = {})
      : name_(decl.name), dtype_(decl.dtype), start_(kGuard + gaps.offset) {
    const PhysicalShape shape = physical_shape(decl, sizes);
    rows_ = shape.rows;
    cols_ = shape.cols;
    stride_ =
        cols_ == 1 ? 1 : (cols_ + gaps.gap + gaps.multiple - 1) / gaps.multiple * gaps.multiple;
    bytes_.resize(total() * size_of(dtype_));
    for (int64_t i = 0; i < total(); ++i) write_element(dtype_, bytes_.data(), i, poison());
    if (values == nullptr) return;
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      write_element(dtype_, data(), i / cols_ * stride_ + i % cols_, (*values)[i]);
    }
  }

  TensorView view() { return {data(), dtype_, rows_, cols_, stride_}; }
  // The same in a copy of `bytes` that starts at `base`.
  TensorView view_at(char* base) const {
    return {base + start_ * size_of(dtype_), dtype_, rows_, cols_, stride_};
  }
  std::vector<char>& bytes() { return bytes_; }

  // Checks that gaps and guards are as they were.
  void check_guards() const {
    for (int64_t i = 0; i < total(); ++i) {
      const int64_t at = i - start_;
      const bool inside = at >= 0 && at < rows_ * stride_ && at % stride_ < cols_;
      if (inside) continue;
      const double value = read_element(dtype_, bytes_.data(), i);
      ASSERT_TRUE(dtype_ == DType::u8
                      ? value == kPoisonByte
                      : std::isnan(value) || value == std::numeric_limits<int32_t>::min())
          << name_ << ": memory outside was written, at element " << at;
    }
  }

  std::vector<double> values() const {
    std::vector<double> result(rows_ * cols_);
    for (int64_t i = 0; i < rows_ * cols_; ++i) {
      result[i] = read_element(dtype_, bytes_.data(), start_ + i / cols_ * stride_ + i % cols_);
    }
    return result;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();
  static constexpr double kPoisonByte = 171;  // bytes of masks have no NaN

  double poison() const { return dtype_ == DType::u8 ? kPoisonByte : kPoison; }
  int64_t total() const { return start_ + rows_ * stride_ + kGuard; }
  char* data() { return bytes_.data() + start_ * size_of(dtype_); }

  std::string name_;
  DType dtype_;
  int64_t start_ = 0;  // of the first row, in elements
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  std::vector<char> bytes_;
};

// The tensors that the program stores, after one run.
inline Values run_program(Backend& backend, const Program& program, const DimValues& sizes,
                          const Values& inputs) {
  std::vector<GuardedTensor> tensors;
  std::vector<TensorView> views;
  tensors.reserve(program.tensors.size());
  for (const TensorDecl& decl : program.tensors) {
    const auto found = inputs.find(decl.name);
    tensors.emplace_back(decl, sizes, found == inputs.end() ? nullptr : &found->second);
    views.push_back(tensors.back().view());
  }
  backend.prepare(program, sizes)->run(views);
  std::set<int> stored;
  for (const Step& step : program.steps) {
    if (program::is_effect(step)) stored.insert(step.tensor());
  }
  Values results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].check_guards();
    if (stored.contains(static_cast<int>(i)))
      results[program.tensors[i].name] = tensors[i].values();
  }
  return results;
}

}  // namespace coda::tests
