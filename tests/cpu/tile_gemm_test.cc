// SPDX-License-Identifier: Apache-2.0
// GEMM kernels of all libraries on packed operands: products as in float64, and the properties that
// everything above relies on: an element's bits do not depend on the rows beside it or on how A
// lies in memory, and a block of k is a sum of its own. Packing, from each layout, against a plain
// loop.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "coda/float16.h"
#include "cpu/instruction_sets.h"
#include "cpu/pack.h"
#include "cpu/tile_gemm.h"

namespace coda::cpu {
namespace {

// A matrix in memory, of the given type.
struct Matrix {
  Matrix(DType type, int64_t rows, int64_t cols, uint32_t seed)
      : bytes(rows * cols * size_of(type)), view(dense_view(bytes.data(), type, rows, cols)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = uniform(random);
      if (type == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = value;
      if (type == DType::bf16) {
        reinterpret_cast<uint16_t*>(bytes.data())[i] = bf16_from_float(value);
      }
    }
  }
  Matrix transposed() const {
    Matrix result(view.dtype, view.cols, view.rows, 0);
    const int64_t size = size_of(view.dtype);
    for (int64_t i = 0; i < view.rows; ++i) {
      for (int64_t j = 0; j < view.cols; ++j) {
        std::memcpy(result.bytes.data() + (j * view.rows + i) * size,
                    bytes.data() + (i * view.cols + j) * size, static_cast<size_t>(size));
      }
    }
    return result;
  }
  double at(int64_t i, int64_t j) const {
    const int64_t e = i * view.cols + j;
    return view.dtype == DType::f32
               ? reinterpret_cast<const float*>(bytes.data())[e]
               : float_from_bf16(reinterpret_cast<const uint16_t*>(bytes.data())[e]);
  }
  std::vector<char> bytes;
  TensorView view;
};

// How a kernel gets its block of A.
enum class Take { packed, by_columns, in_place };

// c[rows, 64] = a[rows, k]·b[k, 64], with k in blocks of `depth`.
std::vector<float> product(GemmLibrary library, DType packed, const Matrix& a, const Matrix& b,
                           int64_t m0, int64_t rows, int64_t depth, Take take = Take::packed,
                           int64_t wanted_columns = kPanelColumns) {
  const Matrix transposed = a.transposed();
  const int64_t k = a.view.cols;
  int64_t columns[kPanelColumns];
  for (int64_t j = 0; j < kPanelColumns; ++j) columns[j] = j;
  std::vector<float> c(rows * kPanelColumns, std::nanf(""));
  std::vector<float> packed_a(rows * depth);
  std::vector<float> packed_b(kPanelColumns * depth);
  for (int64_t k0 = 0; k0 < k; k0 += depth) {
    const int64_t n = std::min(depth, k - k0);
    const void* block = packed_a.data();
    if (take == Take::packed)
      pack_a_block(packed, {a.view, false}, m0, rows, k0, n, packed_a.data());
    if (take == Take::by_columns) {
      pack_a_block_by_columns(packed, {transposed.view, true}, m0, rows, k0, n, packed_a.data());
    }
    if (take == Take::in_place) block = a.bytes.data() + (m0 * k + k0) * size_of(packed);
    pack_b_block(packed, {b.view, true}, columns, k0, n, packed_b.data());
    TileKernel kernel = make_tile_kernel(library, packed, static_cast<int>(rows),
                                         static_cast<int>(packed_depth(packed, n)), kPanelColumns,
                                         k0 > 0, take == Take::by_columns);
    kernel.columns = wanted_columns;
    if (take == Take::in_place) kernel.a_step = k * size_of(packed) / 4;
    // What it is told to ask for ahead changes nothing.
    Ahead ahead;
    ahead.lines[0] = {reinterpret_cast<const char*>(packed_b.data()), 80};
    ahead.lines[1] = {a.bytes.data(), 5, 60};
    kernel(block, packed_b.data(), c.data(), ahead);
  }
  return c;
}

std::vector<std::pair<GemmLibrary, DType>> kinds() {
  std::vector<std::pair<GemmLibrary, DType>> result = {{GemmLibrary::portable, DType::f32}};
  for (GemmLibrary library : {GemmLibrary::libxsmm, GemmLibrary::avx512}) {
    const bool serves =
        resolve(GemmLibrary::best) == GemmLibrary::avx512 || resolve(GemmLibrary::best) == library;
    if (serves) result.push_back({library, DType::f32});
    if (serves && multiplies_bf16(library)) result.push_back({library, DType::bf16});
  }
  return result;
}

TEST(TileGemm, BitsDoNotDependOnTheOtherRows) {
  for_each_instruction_set([] {
    for (const auto& [library, type] : kinds()) {
      const Matrix a(type, 70, 301, 1);
      const Matrix b(type, 301, kPanelColumns, 2);
      const std::vector<float> all = product(library, type, a, b, 0, 70, 301 + 1);
      double error = 0;
      double norm = 0;
      for (int64_t i = 0; i < 70; ++i) {
        for (int64_t j = 0; j < kPanelColumns; ++j) {
          double exact = 0;
          for (int64_t k = 0; k < 301; ++k) exact += a.at(i, k) * b.at(k, j);
          error += std::pow(all[i * kPanelColumns + j] - exact, 2);
          norm += exact * exact;
        }
      }
      EXPECT_LE(std::sqrt(error / norm),
                0x1p-23 * std::sqrt(301.0));  // as sums of random signs err
      std::map<int64_t, std::vector<float>> of_depth{{302, all}};
      for (int64_t depth : {2, 64, 256}) {
        of_depth[depth] = product(library, type, a, b, 0, 70, depth);
      }
      for (int64_t rows = 1; rows <= 40; rows += rows < 14 ? 1 : 7) {
        for (int64_t m0 : {int64_t{0}, int64_t{5}, 70 - rows}) {
          for (const auto& [depth, whole] : of_depth) {
            const std::vector<float> some = product(library, type, a, b, m0, rows, depth);
            ASSERT_EQ(0, std::memcmp(some.data(), whole.data() + m0 * kPanelColumns,
                                     some.size() * sizeof(float)))
                << name_of(type) << " rows " << m0 << " + " << rows << ", k in blocks of " << depth;
          }
        }
      }
    }
  });
}

// Each addition rounds at the size of the sum so far: of n terms with random signs, n/2 roundings
// of the result's size, rms 2^-25. A block begins with 0, so that they are those of a block and
// those of a sum of blocks.
TEST(TileGemm, TheErrorOfALongSumIsThatOfItsBlocks) {
  constexpr int64_t k = 4096;
  const Matrix a(DType::f32, 32, k, 1);
  const Matrix b(DType::f32, k, kPanelColumns, 2);
  for (const auto& [library, type] : kinds()) {
    if (type != DType::f32) continue;
    const int64_t depth = block_depth(type, k);
    const std::vector<float> c = product(library, type, a, b, 0, 32, depth);
    double error = 0;
    double norm = 0;
    for (int64_t i = 0; i < 32; ++i) {
      for (int64_t j = 0; j < kPanelColumns; ++j) {
        double exact = 0;
        for (int64_t kk = 0; kk < k; ++kk) exact += a.at(i, kk) * b.at(kk, j);
        error += std::pow(c[static_cast<size_t>(i * kPanelColumns + j)] - exact, 2);
        norm += exact * exact;
      }
    }
    const double roundings = static_cast<double>(depth + k / depth) / 2;
    EXPECT_LE(std::sqrt(error / norm), 0x1p-25 * std::sqrt(roundings)) << static_cast<int>(library);
  }
}

TEST(TileGemm, BitsDoNotDependOnHowALiesInMemory) {
  for (const auto& [library, type] : kinds()) {
    const Matrix a(type, 70, 302, 1);
    const Matrix b(type, 302, kPanelColumns, 2);
    for (int64_t rows = 1; rows <= 16; ++rows) {
      for (int64_t depth : {64, 302}) {
        const std::vector<float> packed = product(library, type, a, b, 7, rows, depth);
        for (Take take : {Take::by_columns, Take::in_place}) {
          if (take == Take::by_columns && !takes_a_by_columns(library)) continue;
          if (take == Take::in_place && !takes_a_in_place(library)) continue;
          const std::vector<float> c = product(library, type, a, b, 7, rows, depth, take);
          ASSERT_EQ(0, std::memcmp(c.data(), packed.data(), c.size() * sizeof(float)))
              << name_of(type) << ", " << rows << " rows, k in blocks of " << depth;
        }
      }
    }
  }
}

TEST(TileGemm, BitsDoNotDependOnHowManyColumnsAreWanted) {
  for (const auto& [library, type] : kinds()) {
    const Matrix a(type, 70, 302, 1);
    const Matrix b(type, 302, kPanelColumns, 2);
    for (int64_t rows : {1, 6, 7, 16}) {
      const std::vector<float> all = product(library, type, a, b, 7, rows, 128);
      for (int64_t columns : {1, 31, 32, 33}) {
        const std::vector<float> some =
            product(library, type, a, b, 7, rows, 128, Take::packed, columns);
        for (int64_t i = 0; i < rows; ++i) {
          const float* row = some.data() + i * kPanelColumns;
          ASSERT_EQ(0, std::memcmp(row, all.data() + i * kPanelColumns,
                                   static_cast<size_t>(columns) * sizeof(float)))
              << name_of(type) << ", row " << i << " of " << rows << ", " << columns << " columns";
        }
      }
    }
  }
}

TEST(TileGemm, PackingPlacesEveryElementFromEachLayout) {
  for_each_instruction_set([] {
    for (const auto& [stored, packed] : std::vector<std::pair<DType, DType>>{
             {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::bf16, DType::bf16}}) {
      for (bool k_along_rows : {false, true}) {
        const Matrix matrix(stored, 150, 170, 3);
        const GemmOperand operand{matrix.view, k_along_rows};
        const auto element = [&](int64_t k, int64_t other) {
          return k_along_rows ? matrix.at(k, other) : matrix.at(other, k);
        };
        const auto read = [&](const std::vector<char>& from, int64_t i) -> double {
          if (packed == DType::f32) return reinterpret_cast<const float*>(from.data())[i];
          return float_from_bf16(reinterpret_cast<const uint16_t*>(from.data())[i]);
        };
        for (int64_t k : {1, 7, 16, 33, 100}) {
          const int64_t k0 = 10;
          const int64_t depth = packed_depth(packed, k);
          const int64_t rows = 131;
          std::vector<char> a(rows * depth * size_of(packed));
          pack_a_block(packed, operand, 9, rows, k0, k, a.data());
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t kk = 0; kk < depth; ++kk) {
              ASSERT_EQ(read(a, i * depth + kk), kk < k ? element(k0 + kk, 9 + i) : 0)
                  << "a, row " << i << ", k " << kk;
            }
          }
          if (k_along_rows) {
            std::vector<char> columns(a.size());
            pack_a_block_by_columns(packed, operand, 9, rows, k0, k, columns.data());
            const int64_t pair = packed == DType::bf16 ? 2 : 1;
            for (int64_t i = 0; i < rows; ++i) {
              for (int64_t kk = 0; kk < depth; ++kk) {
                ASSERT_EQ(read(columns, (kk / pair * rows + i) * pair + kk % pair),
                          kk < k ? element(k0 + kk, 9 + i) : 0)
                    << "a by columns, row " << i << ", k " << kk;
              }
            }
          }
          // Columns side by side, alternating, and a ragged end.
          for (int step : {1, 2}) {
            int64_t columns[kPanelColumns];
            for (int64_t j = 0; j < kPanelColumns; ++j) columns[j] = 5 + step * j;
            if (step == 2) columns[62] = columns[63] = -1;
            std::vector<char> b(kPanelColumns * depth * size_of(packed));
            pack_b_block(packed, operand, columns, k0, k, b.data());
            for (int64_t kk = 0; kk < depth; ++kk) {
              for (int64_t j = 0; j < kPanelColumns; ++j) {
                const bool is_zero = kk >= k || columns[j] < 0;
                const int64_t at = packed == DType::f32 ? kk * kPanelColumns + j
                                                        : (kk / 2 * kPanelColumns + j) * 2 + kk % 2;
                ASSERT_EQ(read(b, at), is_zero ? 0 : element(k0 + kk, columns[j]))
                    << "b, k " << kk << ", column " << j;
              }
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace coda::cpu
