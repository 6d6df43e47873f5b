// SPDX-License-Identifier: Apache-2.0
// Two matrices may interleave row by row without sharing a byte, so rows are compared.
#include "runtime/overlap.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "coda/error.h"

namespace coda {
namespace {

// A matrix as byte ranges.
struct Extent {
  int64_t begin = 0;
  int64_t width = 0;  // of a row
  int64_t stride = 0;
  int64_t rows = 0;

  explicit Extent(const TensorView& view)
      : begin(static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data))),
        width(view.cols * size_of(view.dtype)),
        stride(view.rows == 1 ? width : view.row_stride * size_of(view.dtype)),
        rows(view.cols == 0 ? 0 : view.rows) {}

  int64_t end() const { return rows == 0 ? begin : begin + (rows - 1) * stride + width; }
};

int64_t floor_divided(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

bool overlap(const Extent& a, const Extent& b) {
  if (a.rows == 0 || b.rows == 0 || a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.rows > b.rows) return overlap(b, a);
  for (int64_t row = 0; row < a.rows; ++row) {
    // Rows of b between the last one that ends before this row of a and the first one that starts
    // after it.
    const int64_t at = a.begin + row * a.stride - b.begin;
    const int64_t first = floor_divided(at - b.width, b.stride) + 1;
    const int64_t last = floor_divided(at + a.width - 1, b.stride);
    if (std::max<int64_t>(first, 0) <= std::min(last, b.rows - 1)) return true;
  }
  return false;
}

}  // namespace

bool overlap(const TensorView& a, const TensorView& b) { return overlap(Extent(a), Extent(b)); }

void check_overlaps(std::vector<GivenTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const GivenTensor& a, const GivenTensor& b) {
    return Extent(a.view).begin < Extent(b.view).begin;
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Extent extent(tensors[i].view);
    for (size_t k = i + 1; k < tensors.size(); ++k) {
      const Extent other(tensors[k].view);
      if (other.begin >= extent.end()) break;
      if (!tensors[i].written && !tensors[k].written) continue;
      if (!overlap(extent, other)) continue;
      const bool is_first = tensors[i].written;
      const std::string written(tensors[is_first ? i : k].name);
      const std::string hit(tensors[is_first ? k : i].name);
      throw Error("tensor '" + written + "' is written, but its memory overlaps that of tensor '" +
                  hit + "'. Remedy: give each memory of its own");
    }
  }
}

}  // namespace coda
