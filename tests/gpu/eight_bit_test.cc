// SPDX-License-Identifier: Apache-2.0
// Kernels with elements of 8 bits: they compute what their programs mean on a CPU (the mainloop is
// not the device's there), and compile without a defect in both ways of summing.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <tuple>

#include "gpu/clean_kernels.h"
#include "gpu/configure/choose_config.h"
#include "gpu/eight_bit_programs.h"
#include "gpu/host_run.h"
#include "gpu/lower.h"
#include "program/random_program.h"

namespace coda::gpu::eight_bits {
namespace {

// A row of 16 bytes, as the copy engine wants it.
constexpr HostRows kRows{.gap = 3, .multiple = 16};

void expect_right(const char* text, const DimValues& sizes) {
  const Program program = parse_program(text);
  SCOPED_TRACE(program.name);
  LowerOptions options;
  options.multiprocessors = 2;  // so that a block has several tiles
  const Values inputs = tests::random_inputs(program, sizes, 1);
  expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, kRows, options));
}

TEST(EightBits, ProgramsWithProductsComputeWhatTheyMean) {
  for (const char* text : tests::kEightBitProducts)
    for (const auto& [m, n] : {std::pair(203, 139), std::pair(144, 80)})
      expect_right(text, {{"M", m}, {"N", n}, {"K", 71}, {"S", 9}});
}

// By the copy engine where rows are whole pieces of 16 bytes.
TEST(EightBits, TilesThatAreLoadedInEightBitsAreWhatTheyMean) {
  for (const char* text : tests::kEightBitLoads)
    for (const auto& [m, n] : {std::pair(203, 139), std::pair(144, 80)})
      expect_right(text, {{"M", m}, {"N", n}, {"K", 71}, {"S", 9}});
}

// Threads load them themselves, a pair at a time where that is aligned.
TEST(EightBits, SecondMembersOfPairsMayBeginAtAnOddColumn) {
  expect_right(R"(program odd {
  gate, up = split_pairs(tile(z[M, 2*N]:bf16), concatenated)
  store(y:bf16, gemm(x[M, K]:e4m3, w[N, K]:e4m3, nt) * gate * up)
})",
               {{"M", 70}, {"N", 139}, {"K", 40}});
}

TEST(EightBits, TilesComputeWhatTheyMean) {
  for (const char* text : tests::kEightBitTiles)
    for (const int64_t columns : {1, 67, 136}) expect_right(text, {{"M", 70}, {"N", columns}});
}

TEST(EightBits, ScalesOfBlocksMultiplyTheSumsOfTheirProducts) {
  for (const char* text : tests::kScaledProducts)
    for (const int64_t m : {203, 144}) expect_right(text, {{"M", m}, {"B", 3}, {"C", 2}});
}

// What a tile is wide does not matter to which scale a column has.
TEST(EightBits, EveryTileTakesTheScalesOfItsOwnBlocks) {
  for (const char* text : {tests::kScaledProducts[0], tests::kScaledProducts[2]}) {
    const Program program = parse_program(text);
    const DimValues sizes{{"M", 176}, {"B", 2}, {"C", 3}};
    const Values inputs = tests::random_inputs(program, sizes, 2);
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (const GemmConfig& choice : legal_choices(program, sizes, {})) {
      if (!seen.insert({choice.tile_m, choice.tile_n}).second) continue;
      SCOPED_TRACE(program.name + gpu::text(choice));
      LowerOptions options;
      options.choice = choice;
      options.multiprocessors = 2;
      expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, kRows, options));
    }
    EXPECT_GE(seen.size(), 2U);
  }
}

TEST(EightBits, ATileFindsTheScalesOfItsRows) {
  for (const char* text : tests::kQuantisedTiles) expect_right(text, {{"M", 70}, {"C", 2}});
  // Groups within a quad's eight columns, of several quads and of several sub-tiles; in a product's
  // epilogue and where tiles are loaded.
  for (const int group : {2, 4, 8, 64, 256}) {
    const std::string g = std::to_string(group);
    const std::string largest = "abs_max_group(y, " + g + ")";
    const std::string stores = "  store(s, " + largest + ")\n  store(z:bf16, y * repeat_group(" +
                               largest + ", " + g + "))\n}";
    const std::string product = "gemm(x[M, K]:bf16, w[" + g + "*C, K]:bf16)";
    const DimValues sizes{{"M", 70}, {"C", 1024 / group}, {"K", 40}};
    expect_right(("program product {\n  y = " + product + "\n" + stores).c_str(), sizes);
    expect_right(("program tile {\n  y = tile(y[M, " + g + "*C]:bf16)\n" + stores).c_str(), sizes);
  }
}

// An instruction reads 8-bit operands along K alone: other layouts are a plain kernel's.
TEST(EightBits, OtherLayoutsAreRightToo) {
  expect_right("program turned { store(y:bf16, gemm(x[M, K]:e4m3, w[K, N]:e4m3)) }",
               {{"M", 70}, {"N", 67}, {"K", 33}});
}

TEST(EightBits, EveryTileCompilesWithoutDefectInBothWaysOfSumming) {
  std::set<std::string> texts;
  const Program product = parse_program(tests::kEightBitProducts[0]);
  // Short sums are left to the tensor cores.
  for (const int64_t length : {4096, 4112}) {
    const bool fast = length == 4096;
    const DimValues sizes{{"M", 4096}, {"N", 2048}, {"K", length}, {"S", 64}};
    LowerOptions options;
    for (const char* text : tests::kEightBitProducts)
      texts.insert(lower(parse_program(text), sizes, options).front().source);
    for (const char* text : tests::kEightBitLoads)
      texts.insert(lower(parse_program(text), sizes, options).front().source);
    std::set<std::tuple<uint32_t, uint32_t, device::Schedule>> seen;
    for (const GemmConfig& choice : legal_choices(product, sizes, options)) {
      if (!fast && choice.schedule != device::Schedule::cooperative) ADD_FAILURE() << text(choice);
      const bool is_first = seen.insert({choice.tile_m, choice.tile_n, choice.schedule}).second;
      if (choice.accumulators() > 128 || !is_first) continue;
      options.choice = choice;
      texts.insert(lower(product, sizes, options).front().source);
    }
    for (const char* text : tests::kEightBitTiles)
      texts.insert(lower(parse_program(text), sizes, options).front().source);
    EXPECT_GE(seen.size(), 2U);
  }
  const DimValues sizes{{"M", 4096}, {"B", 16}, {"C", 16}};
  for (const std::span<const char* const> list :
       {std::span<const char* const>(tests::kScaledProducts),
        std::span<const char* const>(tests::kQuantisedTiles)}) {
    for (const char* text : list)
      for (const auto& kernel : lower(parse_program(text), sizes, {})) texts.insert(kernel.source);
  }
  expect_no_defects(texts);
}

}  // namespace
}  // namespace coda::gpu::eight_bits
