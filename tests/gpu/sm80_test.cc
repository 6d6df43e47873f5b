// SPDX-License-Identifier: Apache-2.0
// The target sm80, for GPUs without wgmma. The tests run the text of its kernels on the CPU, with
// the mainloop: copies, stages, swizzled addresses, fragments of both operands, epilogues. Only the
// PTX instructions are replaced by host code (host_device/device/sm80/ptx).
#include "gpu/sm80/sm80.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "device/sm80/config.cuh"
#include "gpu/clean_kernels.h"
#include "gpu/codegen/gemm_program.h"
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

// For a GPU that the compiler does not know it writes PTX for compute capability 8.0.
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
    EXPECT_THAT(text, HasSubstr(".target sm_80"));
    EXPECT_THAT(text, HasSubstr("mma.sync.aligned.m16n8k16"));
    EXPECT_THAT(text, testing::Not(HasSubstr("wgmma")));
  }
}

TEST(Sm80, EightBitOperandsAreRefused) {
  LowerOptions options;
  options.target = &sm80();
  try {
    lower(tests::library_program("product_e4m3"), {{"M", 256}, {"N", 256}, {"K", 256}}, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor 'x8' has 8-bit floats"));
    EXPECT_THAT(error.what(), HasSubstr("sm80"));
  }
}

// The kernels of an RTX 5090 with an NVRTC that does not know it are the driver's to compile.
TEST(Sm80, AnOldCompilerMakesPtx) {
  const Target& target = sm80_for(12, 0);
  EXPECT_EQ(NvrtcCompiler::architecture_of({12, 8}, target), "sm_120");
  EXPECT_EQ(NvrtcCompiler::architecture_of({12, 7}, target), "compute_80");
  EXPECT_EQ(NvrtcCompiler::options_of({12, 4}, target).front(), "--gpu-architecture=compute_80");
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

TEST(Targets, AreThoseOfTheGpu) {
  for (const auto& [major, minor, name, architecture] : {std::tuple{8, 0, "sm80", "sm_80"},
                                                         {8, 6, "sm80", "sm_86"},
                                                         {8, 9, "sm80", "sm_89"},
                                                         {9, 0, "sm90", "sm_90a"},
                                                         {10, 0, "sm80", "sm_100"},
                                                         {12, 0, "sm80", "sm_120"},
                                                         {13, 5, "sm80", "compute_80"}}) {
    EXPECT_EQ(target_for("", major, minor).name, name);
    EXPECT_EQ(target_for("", major, minor).architecture, architecture);
  }
  EXPECT_EQ(target_for("sm80", 9, 0).architecture, "sm_90");
  EXPECT_EQ(target_for("sm80").architecture, "sm_80");
  EXPECT_EQ(target_for("compute_80", 8, 9).architecture, "compute_80");
}

TEST(Targets, AreFoundByName) {
  EXPECT_EQ(&target_named("sm90"), &sm90());
  EXPECT_EQ(&target_named("sm80"), &sm80());
  EXPECT_EQ(&target_named("sm_86"), &sm80_for(8, 6));
  try {
    target_named("sm75");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("sm75"), HasSubstr("\"sm80\"")));
  }
}

// FragmentMap, which emitters use for a thread's rows and columns, agrees with the device code.
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
