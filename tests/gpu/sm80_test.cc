// SPDX-License-Identifier: Apache-2.0
// The target sm80, for GPUs without wgmma. The tests run the text of its kernels on the CPU, with
// the mainloop: copies, stages, swizzled addresses, fragments of both operands, epilogues. Only the
// PTX instructions are replaced by host code (host_device/device/sm80/ptx).
#include "gpu/sm80/sm80.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "coda/gpu_card.h"
#include "device/sm80/config.cuh"
#include "gpu/clean_kernels.h"
#include "gpu/codegen/gemm_program.h"
#include "gpu/eight_bit_programs.h"
#include "gpu/host_run.h"
#include "gpu/lower.h"
#include "gpu/targets/targets.h"
#include "program/library_programs.h"
#include "program/random_program.h"

namespace coda::gpu {
namespace {

using testing::HasSubstr;

// No size is a multiple of a tile, a sub-tile, a stage or a pair of elements.
const DimValues kUnevenSizes{{"M", 203}, {"N", 139}, {"K", 199}, {"S", 50}};

constexpr HostRows kAlignedRows{.gap = 3, .multiple = 8};

LowerOptions with_sm80_tile(const std::string& choice) {
  LowerOptions options;
  options.target = &sm80();
  options.choice = parse_choice(choice, sm80());
  EXPECT_TRUE(options.choice) << choice;
  return options;
}

void expect_right_on_sm80(const Program& program, const DimValues& sizes, const std::string& choice,
                          HostRows rows = kAlignedRows) {
  SCOPED_TRACE(program.name + ", " + choice);
  const Values inputs = tests::random_inputs(program, sizes, 1);
  expect_close(program, sizes, inputs,
               run_on_host(program, sizes, inputs, rows, with_sm80_tile(choice)));
}

// A row of 16 bytes.
constexpr HostRows kEightBitRows{.gap = 3, .multiple = 16};

void expect_right_on_sm89(const Program& program, const DimValues& sizes) {
  SCOPED_TRACE(program.name);
  const Values inputs = tests::random_inputs(program, sizes, 1);
  expect_close(program, sizes, inputs,
               run_on_host(program, sizes, inputs, kEightBitRows, {.target = &sm89()}));
}

// One number of stages of each tile that the program can have.
std::vector<GemmConfig> choices_of_each_tile(const Program& program, const DimValues& sizes) {
  std::vector<GemmConfig> choices;
  for (const GemmConfig& choice : legal_choices(program, sizes, {.target = &sm89()})) {
    const bool is_known = std::any_of(choices.begin(), choices.end(), [&](const GemmConfig& known) {
      return known.tile_m == choice.tile_m && known.tile_n == choice.tile_n;
    });
    if (!is_known) choices.push_back(choice);
  }
  return choices;
}

// The two groups of warps split the columns of a tile or its rows; there are two to four stages.
TEST(Sm80OnHost, ResidualAndNorm) {
  for (const char* choice : {"128x128c11s3", "128x64c11s2", "64x128c11s4", "256x128c11s2"})
    expect_right_on_sm80(tests::library_program("residual_norm"), kUnevenSizes, choice);
}

// Each operand is contiguous along K or along its outer dimension.
TEST(Sm80OnHost, ProductsOfEveryLayout) {
  for (const char* name : {"product_nt", "product_nn", "product_tn"})
    expect_right_on_sm80(tests::library_program(name), kUnevenSizes, "128x128c11s3");
  expect_right_on_sm80(parse_program(R"(program product_tt {
  store(y:f16, gemm(a[K, M]:f16, b[N, K]:f16, tt))
})"),
                       kUnevenSizes, "128x128c11s2");
}

// Rows start at any address, so no 16-byte copy is aligned.
TEST(Sm80OnHost, OperandsOfAnyPitch) {
  for (const char* name : {"product_nt", "product_nn", "product_tn"})
    expect_right_on_sm80(tests::library_program(name), kUnevenSizes, "64x128c11s3", {.gap = 3});
}

// Columns are whole pieces of 16 bytes, so stored tiles pass through shared memory, as loaded tiles
// do with any number of columns.
const DimValues kSizesInPieces{{"M", 203}, {"N", 136}, {"K", 199}, {"S", 50}};

TEST(Sm80OnHost, StoredTilesPassThroughSharedMemory) {
  for (const char* name : {"product_nt", "residual_norm", "swiglu", "swiglu_backward",
                           "swiglu_joined", "norm_backward"})
    expect_right_on_sm80(tests::library_program(name), kSizesInPieces, "128x128c11s3");
  // Halves of heads: each half in planes of its own, and two halves in each plane.
  for (const char* head : {"128", "64"}) {
    const std::string text = std::string(R"(program rotated {
  acc = gemm(h[M, K]:bf16, w[384, K]:bf16, nt)
  first, second = split_pairs(acc, )") +
                             head + R"()
  store(q:bf16, merge_pairs(first - second * 0.5, second + first * 0.5, )" +
                             head + "))\n}";
    expect_right_on_sm80(parse_program(text), kSizesInPieces, "128x256c11s2");
  }
}

// Rows of tensors are aligned to one another, but not to 16 bytes, as those of a slice.
TEST(Sm80OnHost, TensorsAtAnyAddress) {
  for (const char* name : {"residual_norm", "swiglu_backward", "swiglu_joined"})
    expect_right_on_sm80(tests::library_program(name), kSizesInPieces, "128x128c11s3",
                         {.gap = 3, .multiple = 8, .offset = 1});
}

// Four loaded planes and a shallow ring: a group has fewer slots than sub-tiles, and uses them
// again.
TEST(Sm80OnHost, MorePlanesThanTheStagesHold) {
  const Program program = parse_program(R"(program many_planes {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)
  a = tile(a[M, N]:bf16)
  b = tile(b[M, N]:bf16)
  c = tile(c[M, N]:bf16)
  d = tile(d[M, N]:bf16)
  store(y:bf16, acc * a + b)
  store(z:bf16, acc * c + d)
})");
  expect_right_on_sm80(program, {{"M", 203}, {"N", 328}, {"K", 199}}, "128x256c11s2");
}

// Operands that follow one another along K, each with a last block of its own; one is a single row.
TEST(Sm80OnHost, SegmentsOfK) {
  const Program nn = parse_program(R"(program nn {
  store(y:bf16, gemm(a[M, K]:bf16, b[K, N]:bf16, nn; c[M, L]:bf16, d[L, N]:bf16, nn;
                     e[M, N]:bf16, f[N, N]:bf16, nn))
})");
  const Program nt = parse_program(R"(program nt {
  store(y:bf16, gemm(a[M, K]:bf16, b[N, K]:bf16, nt; c[M, L]:bf16, d[N, L]:bf16, nt))
})");
  for (const Program& program : {nn, nt}) {
    for (const HostRows rows : {kAlignedRows, HostRows{.gap = 3}})
      expect_right_on_sm80(program, {{"M", 203}, {"N", 139}, {"K", 71}, {"L", 1}}, "128x128c11s3",
                           rows);
  }
}

// A tile that holds two products.
TEST(Sm80OnHost, SwiGlu) {
  for (const char* choice : {"128x128c11s3", "128x256c11s2"})
    expect_right_on_sm80(tests::library_program("swiglu"), kUnevenSizes, choice);
}

// Pairs of columns: halves of the whole stored operand, and halves of each head.
TEST(Sm80OnHost, Pairs) {
  expect_right_on_sm80(tests::library_program("swiglu_joined"), kUnevenSizes, "128x128c11s2");
  expect_right_on_sm80(parse_program(R"(program rotated {
  acc = gemm(h[M, K]:bf16, w[384, K]:bf16, nt)
  first, second = split_pairs(acc, 128)
  store(q:bf16, merge_pairs(first - second * 0.5, second + first * 0.5, 128))
})"),
                       kUnevenSizes, "128x256c11s2");
}

// The warps of a group exchange their sums along columns.
TEST(Sm80OnHost, NormBackward) {
  expect_right_on_sm80(tests::library_program("norm_backward"), kUnevenSizes, "128x128c11s2");
}

// On Hopper memory adds the gradient. sm80 loads the stored value, adds, and stores the sum.
TEST(Sm80OnHost, WeightGradientsAreAdded) {
  expect_right_on_sm80(tests::library_program("weight_gradient"), kUnevenSizes, "128x128c11s2");
}

TEST(Sm80OnHost, Entropy) {
  expect_right_on_sm80(tests::library_program("row_entropy"), kUnevenSizes, "128x128c11s2");
}

// Every tile shape sums over K in the same order, block by block, in one set of accumulators.
TEST(Sm80OnHost, EveryTileGivesTheSameBits) {
  const Program program = tests::library_program("residual_norm");
  const Values inputs = tests::random_inputs(program, kUnevenSizes, 1);
  const Values first =
      run_on_host(program, kUnevenSizes, inputs, kAlignedRows, with_sm80_tile("128x128c11s3"));
  for (const char* choice : {"128x64c11s2", "128x256c11s2", "64x128c11s4"})
    EXPECT_EQ(run_on_host(program, kUnevenSizes, inputs, kAlignedRows, with_sm80_tile(choice)),
              first)
        << choice;
}

// Elements of 8 bits: products of both types with epilogues, whose sums the tensor cores make alone
// (K = 71) or are promoted (K = 4112, in other tests); tiles that are loaded, and 8-bit copies in
// both orders.
TEST(Sm89OnHost, ProgramsOf8BitsComputeWhatTheyMean) {
  const DimValues sizes{{"M", 203}, {"N", 139}, {"K", 71}, {"S", 9}};
  for (const char* text : tests::kEightBitProducts)
    expect_right_on_sm89(parse_program(text), sizes);
  for (const char* text : tests::kEightBitLoads) {
    expect_right_on_sm89(parse_program(text), sizes);
    // In whole pieces of 16 bytes, so that tiles of bytes are loaded into shared memory.
    expect_right_on_sm89(parse_program(text), {{"M", 203}, {"N", 144}, {"K", 71}, {"S", 9}});
  }
}

// Warps read the last block of K until the end of the mainloop, and tiles are put where its stage
// is.
TEST(Sm89OnHost, TilesArePutWhereTheLastBlockOfPromotedSumsWas) {
  const Program program = parse_program(tests::kEightBitProducts[4]);
  const DimValues sizes{{"M", 203}, {"N", 144}, {"K", 34 * 128}};
  const Values inputs = tests::random_inputs(program, sizes, 1);
  expect_close(program, sizes, inputs,
               run_on_host(program, sizes, inputs, kEightBitRows,
                           {.target = &sm89(), .choice = parse_choice("128x128c11s3", sm89())}));
}

// Sums of blocks of K that are added in fp32. With every choice of the tile the bits are the same.
TEST(Sm89OnHost, LongSumsArePromotedWithTheSameBitsForEveryTile) {
  const Program program = parse_program(tests::kEightBitProducts[4]);
  const DimValues sizes{{"M", 67}, {"N", 70}, {"K", 4112}};
  const Values inputs = tests::random_inputs(program, sizes, 1);
  std::optional<Values> first;
  const std::vector<GemmConfig> choices = choices_of_each_tile(program, sizes);
  EXPECT_GE(choices.size(), 2U);
  for (const GemmConfig& choice : choices) {
    SCOPED_TRACE(text(choice));
    EXPECT_TRUE(choice.promotes);
    const Values own =
        run_on_host(program, sizes, inputs, kEightBitRows, {.target = &sm89(), .choice = choice});
    expect_close(program, sizes, inputs, own);
    if (!first) first = own;
    EXPECT_EQ(own, *first);
  }
}

TEST(Sm89OnHost, ScalesOfBlocksMultiplyTheSumsOfTheirProducts) {
  for (const char* text : tests::kScaledProducts)
    expect_right_on_sm89(parse_program(text), {{"M", 203}, {"B", 3}, {"C", 2}});
}

// A tile of any width finds the scale of each of its columns. Pairs of columns have one tile only.
TEST(Sm89OnHost, EveryTileTakesTheScalesOfItsOwnBlocks) {
  const DimValues sizes{{"M", 176}, {"B", 2}, {"C", 3}};
  EXPECT_GE(choices_of_each_tile(parse_program(tests::kScaledProducts[0]), sizes).size(), 3U);
  for (const size_t i : {0, 2, 3}) {
    const Program program = parse_program(tests::kScaledProducts[i]);
    const Values inputs = tests::random_inputs(program, sizes, 2);
    for (const GemmConfig& choice : choices_of_each_tile(program, sizes)) {
      SCOPED_TRACE(program.name + ", " + text(choice));
      expect_close(program, sizes, inputs,
                   run_on_host(program, sizes, inputs, kEightBitRows,
                               {.target = &sm89(), .choice = choice}));
    }
  }
}

// Rows start at any address, so no 16-byte copy is aligned.
TEST(Sm89OnHost, OperandsOfAnyPitch) {
  const Program program = parse_program(tests::kEightBitProducts[0]);
  const DimValues sizes{{"M", 203}, {"N", 139}, {"K", 71}};
  const Values inputs = tests::random_inputs(program, sizes, 3);
  expect_close(program, sizes, inputs,
               run_on_host(program, sizes, inputs, {.gap = 3}, {.target = &sm89()}));
}

// Compiles kernels of five programs for compute capability 8.0, with every tile of the target.
TEST(Sm80, KernelsHaveNoDefect) {
  std::optional<NvrtcCompiler> compiler;
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  compiler.emplace(sm80());
  std::set<std::string> sources;
  for (const char* name : {"product_nt", "product_nn", "product_tn", "residual_norm", "swiglu"}) {
    const Program program = tests::library_program(name);
    const DimValues sizes{{"M", 4096}, {"N", 2048}, {"K", 2048}};
    LowerOptions options;
    options.target = &sm80();
    const GemmProgram kernels(program, sizes, options);
    ASSERT_FALSE(kernels.refusal()) << name;
    std::set<std::string> tiles;
    for (const RankedChoice& ranked : kernels.ranked(0)) {
      const std::string tile = code(ranked.choice).substr(0, code(ranked.choice).find('c'));
      if (ranked.is_crowded || !tiles.insert(tile).second) continue;
      sources.insert(kernels.emit(0, ranked.choice).source);
    }
    EXPECT_GE(tiles.size(), 3U) << name;
  }
  expect_no_defects(*compiler, sources, known_clean_kernels());
}

// For a GPU that the compiler does not know it writes PTX for compute capability 8.9, so that the
// GPU has 8-bit floats.
TEST(Sm80, IsPtxForGpusThatTheCompilerDoesNotKnow) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Target& target = sm80_for(13, 0);
  const NvrtcCompiler compiler(target);
  LowerOptions options;
  options.target = &target;
  const auto launches =
      lower(tests::library_program("residual_norm"), {{"M", 64}, {"N", 64}, {"K", 64}}, options);
  for (const KernelLaunch& launch : launches) {
    const CompiledKernel kernel = compiler.compile(launch.source);
    ASSERT_FALSE(kernel.cubin.empty()) << kernel.log;
    EXPECT_EQ(kernel.cubin.back(), '\0');
    const std::string text(kernel.cubin.data());
    EXPECT_THAT(text, HasSubstr(".target sm_89"));
    EXPECT_THAT(text, HasSubstr("mma.sync.aligned.m16n8k16"));
    EXPECT_THAT(text, testing::Not(HasSubstr("wgmma")));
  }
}

// By one line that says which cards have them.
TEST(Sm80, EightBitOperandsAreRefused) {
  for (const Target* target : {&sm80(), &sm80_for(8, 6), &sm80_for(8, 9, false)}) {
    try {
      lower(tests::library_program("product_e4m3"), {{"M", 256}, {"N", 256}, {"K", 256}},
            {.target = target});
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("tensor 'x8' has 8-bit floats"));
      EXPECT_THAT(error.what(), HasSubstr("sm80"));
      EXPECT_THAT(error.what(), HasSubstr("RTX 40 and 50, L4, L40S"));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
  }
}

// Kernels of 8-bit programs in both ways of summing, with every tile, for Ada and for consumer
// Blackwell.
TEST(Sm89, KernelsHaveNoDefect) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  for (const Target* target : {&sm89(), &sm80_for(12, 0)}) {
    if (find_nvrtc()->version() < target->compiler) continue;
    std::set<std::string> sources;
    for (const int64_t length : {4096, 4112}) {
      const DimValues sizes{{"M", 4096}, {"N", 2048}, {"K", length},
                            {"S", 64},   {"B", 16},   {"C", 16}};
      for (const auto& list : {std::span<const char* const>(tests::kEightBitProducts),
                               std::span<const char* const>(tests::kEightBitLoads),
                               std::span<const char* const>(tests::kScaledProducts)}) {
        for (const char* text : list) {
          for (const KernelLaunch& launch :
               lower(parse_program(text), sizes, {.target = target, .uses_table = false}))
            sources.insert(launch.source);
        }
      }
      const Program product = parse_program(tests::kEightBitProducts[0]);
      const GemmProgram kernels(product, sizes, {.target = target});
      ASSERT_FALSE(kernels.refusal());
      for (const RankedChoice& ranked : kernels.ranked(0))
        if (!ranked.is_crowded && ranked.choice.stages == 2)
          sources.insert(kernels.emit(0, ranked.choice).source);
    }
    expect_no_defects(NvrtcCompiler(*target), sources, known_clean_kernels());
  }
}

// The kernels of an RTX 5090 with an NVRTC that does not know it are the driver's to compile.
TEST(Sm80, AnOldCompilerMakesPtx) {
  const Target& target = sm80_for(12, 0);
  EXPECT_EQ(NvrtcCompiler::architecture_of({12, 8}, target), "sm_120");
  EXPECT_EQ(NvrtcCompiler::architecture_of({12, 7}, target), "compute_89");
  EXPECT_EQ(NvrtcCompiler::options_of({12, 4}, target).front(), "--gpu-architecture=compute_89");
  EXPECT_EQ(NvrtcCompiler::architecture_of(kOldestNvrtc, sm80_for(8, 9)), "sm_89");
  EXPECT_EQ(NvrtcCompiler::architecture_of(kOldestNvrtc, sm90()), "sm_90a");
}

// No configuration uses more shared memory than the GPU has; those that have more use it.
TEST(Sm80, ConfigurationsFitIntoTheGpusSharedMemory) {
  const Program program = tests::library_program("residual_norm");
  const DimValues sizes{{"M", 4096}, {"N", 2048}, {"K", 2048}};
  for (const Target& target : sm80_targets()) {
    LowerOptions options;
    options.target = &target;
    uint32_t most = 0;
    for (const GemmConfig& choice : legal_choices(program, sizes, options)) {
      options.choice = choice;
      most = std::max(most, lower(program, sizes, options).front().shared_bytes);
    }
    EXPECT_LE(most, target.shared_bytes) << target.architecture;
    EXPECT_GT(most, target.shared_bytes * 4 / 5) << target.architecture;
  }
}

// The fastest tiles of all that were timed on an H200 (lab/notebook/hopper.md). A tile with few
// rows or columns moves more bytes through shared memory for each product; a small problem has too
// few large tiles.
TEST(Sm80, TheCostModelSelectsTheFastestMeasuredTiles) {
  const Target& target = with_rates_of(sm80_for(9, 0, false), gpu_card("H200"));
  for (const auto& [name, m, n, k, fastest] : {
           std::tuple{"product_tn", 2048, 2048, 2048, "256x128c11s3"},
           std::tuple{"product_tn", 8192, 8192, 8192, "256x128c11s3"},
           std::tuple{"product_nt", 2048, 5632, 16384, "256x128c11s3"},
           std::tuple{"product_nt", 1024, 3072, 4096, "256x128c11s3"},
           std::tuple{"product_tn", 512, 4096, 1024, "128x128c11s4"},
           std::tuple{"product_tn", 1024, 1024, 1024, "128x64c11s4"},
           std::tuple{"residual_norm", 16384, 4096, 4096, "256x128c11s3"},
           std::tuple{"residual_norm", 2048, 1024, 1024, "128x128c11s4"},
           std::tuple{"swiglu", 16384, 11264, 4096, "256x128c11s3"},
       }) {
    const Program program = tests::library_program(name);
    const DimValues sizes{{"M", m}, {"N", n}, {"K", k}};
    LowerOptions options;
    options.target = &target;
    const GemmProgram kernels(program, sizes, options);
    ASSERT_FALSE(kernels.refusal()) << name;
    EXPECT_EQ(code(kernels.ranked(0).front().choice), fastest) << name << " " << m << " " << n;
  }
}

TEST(Targets, AreThoseOfTheGpu) {
  for (const auto& [major, minor, name, architecture] : {std::tuple{8, 0, "sm80", "sm_80"},
                                                         {8, 6, "sm80", "sm_86"},
                                                         {8, 9, "sm89", "sm_89"},
                                                         {9, 0, "sm90", "sm_90a"},
                                                         {10, 0, "sm89", "sm_100"},
                                                         {12, 0, "sm89", "sm_120"},
                                                         {13, 5, "sm89", "compute_89"}}) {
    const Target& target = target_for("", major, minor);
    EXPECT_EQ(target.name, name);
    EXPECT_EQ(target.architecture, architecture);
    EXPECT_EQ(target.has_eight_bits, target.name != "sm80");
  }
  EXPECT_EQ(target_for("sm80", 9, 0).architecture, "sm_90");
  EXPECT_FALSE(target_for("sm80", 9, 0).has_eight_bits);
  EXPECT_EQ(target_for("sm89", 9, 0).architecture, "sm_90");
  EXPECT_TRUE(target_for("sm89", 9, 0).has_eight_bits);
  // target_of() then refuses it.
  EXPECT_EQ(target_for("sm89", 8, 6).architecture, "sm_89");
  EXPECT_EQ(target_for("sm80").architecture, "sm_80");
  EXPECT_EQ(target_for("compute_80", 8, 9).architecture, "compute_80");
}

TEST(Targets, AreFoundByName) {
  EXPECT_EQ(&target_named("sm90"), &sm90());
  EXPECT_EQ(&target_named("sm80"), &sm80());
  EXPECT_EQ(&target_named("sm89"), &sm89());
  EXPECT_EQ(&target_named("sm_86"), &sm80_for(8, 6));
  EXPECT_EQ(&target_named("sm120"), &sm80_for(12, 0));
  EXPECT_EQ(&target_named("sm80:sm_90"), &target_for("sm80", 9, 0));
  for (const char* unknown : {"sm75", "sm90:sm_80", "sm80:", ":", "rtx4090"}) {
    try {
      target_named(unknown);
      ADD_FAILURE() << unknown;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(unknown), HasSubstr("\"sm80\"")));
    }
  }
}

TEST(Targets, FragmentMapsAreTheDevices) {
  for (const Target* target : {&sm90(), &sm80()}) {
    const FragmentMap& map = target->fragment;
    EXPECT_EQ(map.row_of_pair(), "at.row + 8 * (pair % 2)");
    EXPECT_EQ(map.column_of_pair(), "at.column + 8 * (pair / 2)");
    for (uint32_t thread = 0; thread < device::kWarpgroupSize; ++thread) {
      for (uint32_t i = 0; i < device::kFragmentElements; ++i) {
        const uint32_t pair = i / 2;
        EXPECT_EQ(device::fragment_row(thread, i),
                  device::fragment_row(thread, 0) + map.rows_apart * (pair % 2));
        EXPECT_EQ(device::fragment_column(thread, i),
                  device::fragment_column(thread, 0) + map.columns_apart * (pair / 2) + i % 2);
      }
    }
  }
}

}  // namespace
}  // namespace coda::gpu
