// SPDX-License-Identifier: Apache-2.0

#include "base/stored_element.h"
#include "measure/random_fill.h"

namespace coda::measure {
namespace {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// A sum of four numbers from [0, 1), whose variance is a third, made one of variance 1 about 0.
float nearly_normal(uint64_t bits) {
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xffff) * 0x1p-16F;
  return (sum - 2.0F) * 1.7320508F;
}

}  // namespace

void fill_random_on_host(const TensorView& view, uint64_t seed, float scale, uint32_t limit) {
  const uint64_t salt = mix(seed);
  for (int64_t row = 0; row < view.rows; ++row) {
    for (int64_t col = 0; col < view.cols; ++col) {
      const uint64_t bits = mix(static_cast<uint64_t>(row * view.cols + col) ^ salt);
      const int64_t at = row * view.row_stride + col;
      const double x = view.dtype == DType::i32  ? static_cast<double>((bits >> 32) % limit)
                       : view.dtype == DType::u8 ? static_cast<double>(bits >> 63)
                                                 : double{scale * nearly_normal(bits)};
      write_element(view.dtype, view.data, at, x);
    }
  }
}

}  // namespace coda::measure
