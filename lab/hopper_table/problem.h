// SPDX-License-Identifier: Apache-2.0
// One GEMM shape with its tensors on the device, in several sets so that timing never measures the
// L2 cache, and kernels prepared to run on it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lab/hopper_table/driver.h"
#include "lab/hopper_table/nvrtc_compiler.h"
#include "lab/hopper_table/synthetic_arguments.cuh"
#include "lab/hopper_table/variants.h"

namespace coda::hopper_table {

struct Shape {
  unsigned m = 0;
  unsigned n = 0;
  unsigned k = 0;
  device::OperandLayout layout = device::OperandLayout::tn;
  bool fp16 = false;

  double flops() const { return 2.0 * m * n * k; }
  std::string name() const;
};

struct Matrix {
  DevicePointer data = 0;
  unsigned rows = 0;
  unsigned columns = 0;
  unsigned pitch = 0;  // elements

  std::size_t bytes() const { return std::size_t{rows} * pitch * 2; }
};

// Rows padded to 128 bytes, so that TMA can address every size.
unsigned padded(unsigned columns);

struct TensorSet {
  Matrix a;
  Matrix b;
  std::vector<Matrix> loads;
  std::vector<Matrix> stores;
};

// Fills operands and judges results with kernels of its own.
class Support {
 public:
  Support(const Device& device, const NvrtcCompiler& compiler);

  void fill_normal(const Matrix& matrix, unsigned long long seed, bool fp16) const;
  void naive_gemm(const Shape& shape, const TensorSet& set, DevicePointer out) const;
  void compare(const Shape& shape, const TensorSet& set, const Variant& variant, unsigned plane,
               std::size_t extra, DevicePointer product, DevicePointer verdict) const;

 private:
  const Device& device_;
  Function fill_ = nullptr;
  Function gemm_ = nullptr;
  Function compare_ = nullptr;
};

class Problem {
 public:
  // Each output has `extra` elements after its end.
  Problem(const Device& device, const Support& support, const Shape& shape, unsigned sets,
          unsigned planes, std::size_t extra = 0);
  ~Problem();
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const Shape& shape() const { return shape_; }
  const std::vector<TensorSet>& sets() const { return sets_; }
  DevicePointer tile_counter() const { return tile_counter_; }
  // Every element becomes a NaN whose bits no rounding produces.
  void poison_outputs() const;

 private:
  Matrix allocate(unsigned rows, unsigned columns, std::size_t extra);

  const Device& device_;
  Shape shape_;
  std::size_t extra_;
  std::vector<TensorSet> sets_;
  std::vector<DevicePointer> owned_;
  DevicePointer tile_counter_ = 0;
};

// A loaded kernel, and how many of its clusters run at once.
struct LoadedKernel {
  Function function = nullptr;
  LaunchShape launch;
  unsigned resident_clusters = 0;
};

LoadedKernel load_variant(const Device& device, const Variant& variant,
                          const std::vector<char>& cubin);

// How the tiles are walked: in bands of `rows` rows of the output, or of its columns.
struct Band {
  unsigned length = 2048;
  bool columns = false;

  std::string name() const { return std::to_string(length) + (columns ? "n" : "m"); }
};

// Runs the kernel on one of the problem's sets.
std::function<void(unsigned set)> prepare(const Device& device, const LoadedKernel& kernel,
                                          const Variant& variant, const Problem& problem,
                                          Band band);

}  // namespace coda::hopper_table
