// SPDX-License-Identifier: Apache-2.0
// Packing alone: a block of 128 rows of A and a panel of B, 2048 deep, from matrices that lie in
// the outer caches, as they are (k along columns) and transposed. Elements a second.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "cpu/pack.h"
#include "cpu/tile_gemm.h"

namespace coda::cpu {
namespace {

constexpr int64_t kDepth = 2048;
constexpr int64_t kWidth = 1024;  // of the matrix, across k

GemmOperand operand(std::vector<char>& memory, DType type, bool k_along_rows) {
  memory.assign(kDepth * kWidth * size_of(type), 0);
  const int64_t rows = k_along_rows ? kDepth : kWidth;
  return {dense_view(memory.data(), type, rows, kDepth + kWidth - rows), k_along_rows};
}

void pack_a(benchmark::State& state, DType stored, DType packed, bool k_along_rows) {
  constexpr int64_t kRows = 128;
  std::vector<char> memory;
  const GemmOperand a = operand(memory, stored, k_along_rows);
  std::vector<char> out(kRows * kDepth * 4);
  int64_t m0 = 0;
  for (auto _ : state) {
    for (int64_t k0 = 0; k0 < kDepth; k0 += block_depth(packed, kDepth)) {
      pack_a_block(packed, a, m0, kRows, k0, block_depth(packed, kDepth),
                   out.data() + k0 * kRows * size_of(packed));
    }
    m0 = (m0 + kRows) % kWidth;
  }
  state.SetItemsProcessed(state.iterations() * kRows * kDepth);
}

void pack_b(benchmark::State& state, DType stored, DType packed, bool k_along_rows) {
  std::vector<char> memory;
  const GemmOperand b = operand(memory, stored, k_along_rows);
  std::vector<char> out(kPanelColumns * kDepth * 4);
  int64_t columns[kPanelColumns];
  int64_t n0 = 0;
  for (auto _ : state) {
    for (int64_t j = 0; j < kPanelColumns; ++j) columns[j] = n0 + j;
    for (int64_t k0 = 0; k0 < kDepth; k0 += block_depth(packed, kDepth)) {
      pack_b_block(packed, b, columns, k0, block_depth(packed, kDepth),
                   out.data() + k0 * kPanelColumns * size_of(packed));
    }
    n0 = (n0 + kPanelColumns) % kWidth;
  }
  state.SetItemsProcessed(state.iterations() * kPanelColumns * kDepth);
}

void register_all() {
  struct Types {
    const char* name;
    DType stored, packed;
  };
  for (const Types& t :
       {Types{"f32", DType::f32, DType::f32}, Types{"bf16", DType::bf16, DType::bf16},
        Types{"bf16_widened", DType::bf16, DType::f32}}) {
    for (bool k_along_rows : {false, true}) {
      const std::string name =
          std::string(t.name) + (k_along_rows ? "/k_along_rows" : "/k_along_columns");
      benchmark::RegisterBenchmark(("a/" + name).c_str(), pack_a, t.stored, t.packed, k_along_rows);
      benchmark::RegisterBenchmark(("b/" + name).c_str(), pack_b, t.stored, t.packed, k_along_rows);
    }
  }
}

}  // namespace
}  // namespace coda::cpu

int main(int argc, char** argv) {
  coda::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
