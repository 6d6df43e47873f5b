// SPDX-License-Identifier: Apache-2.0
// What a tile space is to a kernel, for programs that show each case: which products are parts, how
// tensors are moved, in which planes; and that a tile is chosen for it as was measured to be best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/codegen/gemm_program.h"
#include "gpu/legalise/clone_shared_loads.h"
#include "gpu/legalise/space_analysis.h"
#include "gpu/lower.h"
#include "program/library_programs.h"

namespace coda::gpu {
namespace {

using ::testing::Not;
using ::testing::StartsWith;

std::string analysis_of(const std::string& program_text, const DimValues& sizes) {
  const Program program = parse_program(program_text);
  const LowerOptions options;
  const ProgramSizes program_sizes(program, sizes, options);
  const auto analysis =
      analyse_space(program_sizes, program::map_tiles(program), 0, {sm90().planes.most});
  return text(std::get<SpaceAnalysis>(analysis), program);
}

TEST(SpaceAnalysis, TwoProductsOfOneOperandAreTwoParts) {
  EXPECT_EQ(analysis_of(R"(program p {
    gate = gemm(h[M, D]:bf16, wg[I, D]:bf16)
    store(gate:bf16, gate)
    store(a:bf16, silu(gate) * gemm(h, wu[I, D]:bf16))
  })",
                        {{"M", 8}, {"D", 64}, {"I", 128}}),
            "layout tn bf16\n"
            "part: h x wg\n"
            "part: h x wu\n"
            "store gate: staged in plane 0\n"
            "store a: staged in plane 1\n");
}

TEST(SpaceAnalysis, RotatedPairsAreAccumulatedInNaturalOrder) {
  EXPECT_EQ(analysis_of(R"(program p {
    first, second = split_pairs(gemm(x[M, D]:bf16, w[256, D]:bf16), 64)
    cos = tile(cos[S, 32], rows=position[M], repeat=4)
    store(y:bf16, merge_pairs(first * cos, second * cos, 64))
  })",
                        {{"M", 8}, {"D", 64}, {"S", 16}}),
            "layout tn bf16\n"
            "part member 0: x x w\n"
            "part member 1: x x w\n"
            "in natural order, half 32\n"
            "load cos: direct\n"
            "store y: staged in plane 0, 1 (permuted)\n");
}

TEST(SpaceAnalysis, ConcatenatedPairsAreTwoViewsOfOneTensor) {
  EXPECT_EQ(analysis_of(R"(program p {
    z = gemm(x[M, D]:f16, w[2*I, D]:f16)
    store(z:f16, z)
    gate, up = split_pairs(z, concatenated)
    store(a:f16, gate * up)
  })",
                        {{"M", 8}, {"D", 64}, {"I", 72}}),
            "layout tn f16, ragged columns\n"
            "part member 0: x x w\n"
            "part member 1: x x w\n"
            "store z: staged in plane 0, 1\n"
            "store a: staged in plane 2\n");
}

TEST(SpaceAnalysis, Fp32GradientsAreAddedAtTheMemory) {
  EXPECT_EQ(analysis_of(R"(program p {
    store(dw, tile(dw[N, K]) + gemm(g[M, N]:bf16, x[M, K]:bf16))
  })",
                        {{"M", 8}, {"N", 64}, {"K", 64}}),
            "layout nt bf16\n"
            "part: g x x\n"
            "load dw: nothing\n"
            "store dw: added\n");
}

// TMA clips what it stores to 16 bytes, and its rows begin at multiples of 16 bytes.
TEST(SpaceAnalysis, WhatTmaCannotAddressIsDirect) {
  EXPECT_EQ(analysis_of(R"(program p {
    y = gemm(x[M, K]:bf16, w[K, N]:bf16) + tile(r[M, N]:bf16)
    store(y:bf16, y)
    row_partial(s, max(tile(t[M, N]) + y))
  })",
                        {{"M", 8}, {"N", 61}, {"K", 64}}),
            "layout nn bf16, ragged columns\n"
            "part: x x w\n"
            "load r: direct\n"
            "load t: direct\n"
            "store y: direct\n"
            "row partial s\n");
}

TEST(SpaceAnalysis, ProductsThatShareOnlyLoadsAreSeparated) {
  const Program program = parse_program(R"(program p {
    c = tile(c[M, 64]:bf16)
    store(q:bf16, gemm(x[M, D]:bf16, wq[64, D]:bf16) * c)
    store(k:bf16, gemm(x, wk[64, D]:bf16) * c)
    store(twice:bf16, c + c)
  })");
  EXPECT_EQ(tile_spaces(program).size(), 1U);
  const Program separate = clone_shared_loads(program);
  verify(separate);
  EXPECT_EQ(tile_spaces(separate).size(), 2U);
}

std::string chosen_for(const std::string& name, const DimValues& sizes) {
  return text(legal_choices(tests::library_program(name), sizes, {}).front());
}

// lab/notebook/hopper.md, "What it decides".
TEST(ChooseConfig, TakesWhatWasMeasuredToBeBest) {
  const DimValues small{{"M", 16384}, {"N", 2048}, {"K", 2048}};
  const DimValues deep{{"M", 16384}, {"N", 2048}, {"K", 5632}};
  EXPECT_EQ(chosen_for("product_tn", small), "128x256 cooperative, cluster 2x1, 3 stages");
  EXPECT_EQ(chosen_for("product_tn", deep), "128x256 cooperative, cluster 2x1, 3 stages");
  EXPECT_EQ(chosen_for("norm_backward", deep), "128x256 cooperative, cluster 2x1, 3 stages");
  EXPECT_EQ(chosen_for("swiglu_backward", {{"M", 16384}, {"N", 5632}, {"K", 2048}}),
            "192x128 ping-pong, cluster 1x2, 4 stages");  // 1.23 of cuBLAS's time; cluster 2x1 1.24
}

// Two products of 96 columns are walked in sub-tiles of 32, so nothing may span 64 of their
// columns.
TEST(ChooseConfig, HalfSubTilesServeWhatSpansNoColumns) {
  const auto is_served = [](const std::string& effects) {
    const Program program = parse_program(
        "program p {\n  a = gemm(x[M, K]:bf16, v[N, K]:bf16, nt) * per_row(r[M])\n"
        "  b = gemm(x, w[N, K]:bf16, nt)\n  " +
        effects + "\n}");
    const auto legal = legal_choices(program, {{"M", 16384}, {"N", 5632}, {"K", 2048}}, {});
    return std::any_of(legal.begin(), legal.end(),
                       [](const GemmConfig& one) { return one.tile_n == 192; });
  };
  EXPECT_TRUE(is_served("store(y:bf16, a * b + tile(z[M, N]:bf16))"));
  EXPECT_FALSE(is_served("store(y:bf16, a * b + per_column(c[N]))"));
  EXPECT_FALSE(is_served("store(y:bf16, a * b)\n  row_partial(s, sum(a))"));
  EXPECT_FALSE(is_served("store(y:bf16, a * b)\n  column_partial(s, sum(a))"));
  EXPECT_FALSE(is_served("store(y, a * b)"));  // fp32, which threads store
}

// What has little room is ranked, so that it is tuned, but taken only where it was timed.
TEST(ChooseConfig, AnEpilogueThatFillsTheRegistersIsTimedFirst) {
  const Program program = tests::library_program("swiglu");
  for (const int64_t tokens : {256, 1024, 4096, 16384, 65536}) {
    const DimValues sizes{{"M", tokens}, {"N", 5632}, {"K", 2048}};
    LowerOptions options;
    options.uses_table = false;
    const GemmProgram kernels(program, sizes, options);
    const std::vector<RankedChoice> ranked = kernels.ranked(0);
    const auto crowded = std::find_if(ranked.begin(), ranked.end(),
                                      [](const RankedChoice& one) { return one.is_crowded; });
    ASSERT_NE(crowded, ranked.end());
    const auto chosen = std::find_if(ranked.begin(), ranked.end(), [&](const RankedChoice& one) {
      return code(one.choice) == code(kernels.chosen(0).choice);
    });
    ASSERT_NE(chosen, ranked.end());
    EXPECT_FALSE(chosen->is_crowded) << code(chosen->choice);
    const KernelClass own = kernels.class_of(0);
    options.tuned = std::make_shared<const TunedRows>(own.name + " | " + text(own.extents) + " | " +
                                                      code(crowded->choice) + " 1");
    EXPECT_EQ(code(GemmProgram(program, sizes, options).chosen(0).choice), code(crowded->choice));
  }
}

// Where each processor has one tile, both warpgroups share it: nothing would hide the epilogue of
// one. Where there are more tiles than processors it is never taken without a measurement.
TEST(ChooseConfig, OneWaveOfTilesIsSharedByBothWarpgroups) {
  struct Case {
    const char* program;
    DimValues sizes;
    const char* one_wave;  // of 1024 rows
  };
  const Case cases[] = {
      {"residual_norm", {{"N", 2048}, {"K", 2048}}, "128x128 cooperative, cluster 1x2, 5 stages"},
      {"rope", {{"H", 16}, {"K", 2048}, {"S", 4096}}, "128x128 cooperative, cluster 1x2, 6 stages"},
      {"product_tn", {{"N", 2048}, {"K", 2048}}, "128x128 ping-pong, cluster 1x2, 6 stages"},
  };
  for (const Case& one : cases) {
    const Program program = tests::library_program(one.program);
    const auto chosen = [&](int64_t tokens, uint32_t multiprocessors) {
      DimValues sizes = one.sizes;
      sizes["M"] = tokens;
      LowerOptions options;
      options.uses_table = false;
      options.multiprocessors = multiprocessors;
      return text(GemmProgram(program, sizes, options).chosen(0).choice);
    };
    EXPECT_EQ(chosen(1024, 132), one.one_wave) << one.program;
    EXPECT_THAT(chosen(1024, 64), Not(StartsWith("128x128 cooperative"))) << one.program;
    for (const int64_t tokens : {2048, 3000, 4096, 8192, 16384, 65536}) {
      EXPECT_THAT(chosen(tokens, 132), Not(StartsWith("128x128 cooperative"))) << one.program;
    }
  }
}

// A small output is cut into tiles enough for the processors.
TEST(ChooseConfig, SmallOutputsHaveSmallTiles) {
  const Program program = tests::library_program("product_tn");
  for (const int64_t size : {256, 512, 1024}) {
    const DimValues sizes{{"M", size}, {"N", size}, {"K", 2048}};
    const KernelLaunch launch = lower(program, sizes, {}).front();
    EXPECT_GE(launch.grid, std::min<int64_t>(size * size / (64 * 64), 48)) << size;
    EXPECT_LE(launch.shared_bytes, device::kSharedMemoryPerBlock);
  }
}

}  // namespace
}  // namespace coda::gpu
