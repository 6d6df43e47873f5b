// SPDX-License-Identifier: Apache-2.0
// Programs on the GPU against their meaning in float64 (program_check.h): written ones and random
// ones. Needs a GPU; skipped elsewhere.
#include "on_gpu/program_check.h"
#include "on_gpu/on_gpu.h"

namespace coda::tests {
namespace {

using WrittenPrograms = OnGpu;

TEST_F(WrittenPrograms, OfTheLibrary) {
  const std::vector<DimValues> shapes{
      {{"M", 128}, {"N", 256}, {"K", 64}, {"S", 50}, {"H", 3}},
      {{"M", 300}, {"N", 392}, {"K", 200}, {"S", 50}, {"H", 3}},
      {{"M", 1}, {"N", 8}, {"K", 8}, {"S", 3}, {"H", 3}},
      {{"M", 520}, {"N", 1000}, {"K", 136}, {"S", 50}, {"H", 3}},
  };
  const auto programs = written_programs("programs");
  uint64_t seed = 1;
  for (const DimValues& sizes : shapes)
    check_all(programs, sizes, 100 * seed++, {.gap = 0, .multiple = 8}, kSinglePrecision);
}

// Sizes and pitches that the copy engine cannot address.
TEST_F(WrittenPrograms, WithUnalignedRows) {
  const std::vector<DimValues> shapes{{{"M", 77}, {"N", 129}, {"K", 65}, {"S", 50}, {"H", 3}},
                                      {{"M", 130}, {"N", 67}, {"K", 31}, {"S", 9}, {"H", 3}}};
  const auto programs = written_programs("programs");
  uint64_t seed = 11;
  for (const DimValues& sizes : shapes)
    check_all(programs, sizes, 100 * seed++, {.gap = 3, .multiple = 1}, kSinglePrecision);
}

// A vector of columns beside pairs whose members are neighbours, or an odd number apart.
TEST_F(WrittenPrograms, WithVectorsBesidePairs) {
  std::vector<Program> programs;
  for (const char* group : {"2", "6", "concatenated"}) {
    const std::string pairs = "merge_pairs(gate, up, " + std::string(group) + ")";
    programs.push_back(
        parse_program("program biased {\n  gate = gemm(x[M, K]:bf16, w_gate[3*N, K]:bf16, nt)\n"
                      "  up = gemm(x, w_up[3*N, K]:bf16, nt)\n  store(y:bf16, " +
                      pairs + " + per_column(bias[6*N]))\n  store(z:bf16, " + pairs +
                      " * per_column(scale[6*N]:bf16))\n}"));
  }
  for (const int64_t columns : {128, 67})
    check_all(programs, {{"M", 200}, {"N", columns}, {"K", 72}}, 31, {.gap = 0, .multiple = 8},
              kSinglePrecision);
}

using RandomPrograms = OnGpu;

// Whatever they have of products, pairs, groups and reductions: all run, whole or split.
TEST_F(RandomPrograms, AgreeWithFloat64) {
  constexpr uint64_t kPrograms = 100;
  struct Case {
    RandomProgram random;
    Program program;
    RowGaps gaps;
  };
  std::vector<Case> cases;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const RandomProgram random = random_program(seed);
    cases.push_back({random,
                     with_operands(random.program, seed % 2 == 0 ? DType::bf16 : DType::f16),
                     seed % 3 == 0 ? RowGaps{} : RowGaps{.gap = 0, .multiple = 8}});
  }
  gpu::parallel_for(cases.size(), 0, [&](size_t i) {
    try {
      compile_ahead({{&cases[i].program, {}}}, cases[i].random.sizes, cases[i].gaps);
    } catch (const Error&) {
      // check() will say it.
    }
  });
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const Case& one = cases[seed - 1];
    check(one.program, one.random.sizes, seed, one.gaps, kRandomPrograms);
    if (one.random.finalizer)
      check(*one.random.finalizer, one.random.sizes, seed, one.gaps, kRandomPrograms);
  }
}

}  // namespace
}  // namespace coda::tests
