// SPDX-License-Identifier: Apache-2.0
// Programs that no kernel holds are split: their parts, evaluated one after another in float64, are
// the program, and each part becomes kernels.
#include "gpu/legalise/split_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "base/seeds.h"
#include "coda/error.h"
#include "gpu/clean_kernels.h"
#include "gpu/configure/choose_config.h"
#include "gpu/gemm_programs.h"
#include "gpu/head_norm_block.h"
#include "gpu/lower.h"
#include "gpu/lower_parts.h"
#include "program/evaluate.h"
#include "program/random_program.h"

namespace coda::gpu {
namespace {

using program::TensorValues;
using ::testing::HasSubstr;

// Every part sees the inputs and what the parts before it store.
TensorValues evaluate_parts(const std::vector<Program>& parts, const DimValues& sizes,
                            const TensorValues& inputs) {
  TensorValues values = inputs;
  TensorValues stored;
  for (const Program& part : parts) {
    for (auto& [name, result] : program::evaluate(part, sizes, values)) {
      values[name] = result;
      stored[name] = std::move(result);
    }
  }
  return stored;
}

void expect_equal(const Program& program, const std::vector<Program>& parts, const DimValues& sizes,
                  uint64_t seed) {
  const TensorValues inputs = tests::random_inputs(program, sizes, seed);
  const TensorValues expected = program::evaluate(program, sizes, inputs);
  const TensorValues stored = evaluate_parts(parts, sizes, inputs);
  for (const auto& [name, values] : expected) {
    const auto found = stored.find(name);
    ASSERT_NE(found, stored.end()) << name << " is stored by no part";
    ASSERT_EQ(found->second.size(), values.size()) << name;
    double largest = 0;
    double off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      off = std::max(off, std::abs(values[i] - found->second[i]));
    }
    // Segments of a product are added in another order.
    ASSERT_LE(off, 1e-12 * (1 + largest)) << name << "\n" << text(program);
  }
}

std::vector<Program> programs_of(const LoweredParts& parts) {
  std::vector<Program> programs;
  for (const LoweredPart& part : parts.parts) programs.push_back(part.part.program);
  return programs;
}

Program with_16_bit_operands(Program program, DType type) {
  for (const Step& step : program.steps) {
    for (const GemmSegment& segment : step.segments()) {
      program.tensors[segment.a].dtype = type;
      program.tensors[segment.b].dtype = type;
    }
  }
  return program;
}

// The texts of a program's parts, and the scratch tensors, as lower() splits it.
std::string split_text(const std::string& program_text, const DimValues& sizes) {
  const Program program = parse_program(program_text);
  const LoweredParts parts = split_to_fit(program, sizes, {});
  for (uint64_t seed = 1; seed < 3; ++seed) expect_equal(program, programs_of(parts), sizes, seed);
  std::string result;
  for (const LoweredPart& part : parts.parts) result += text(part.part.program);
  return result;
}

// The value is rounded and stored anyway: the second part reads that, and nothing else is kept.
TEST(SplitProgram, AStoredValueIsReadBack) {
  EXPECT_EQ(split_text(R"(program logits {
    l = as_stored(gemm(x[M, K]:bf16, w[N, K]:bf16), bf16)
    store(logits[M, N]:bf16, l)
    row_partial(lse, log_sum_exp(l))
    column_partial(columns, log_sum_exp(l))
  })",
                       {{"M", 70}, {"N", 72}, {"K", 8}}),
            R"(program logits_part1 {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16)
  logits = as_stored(acc, bf16)
  store(logits:bf16, logits)
  row_partial(lse, log_sum_exp(logits))
}
program logits_part2 {
  column_partial(columns, log_sum_exp(tile(logits[M, N]:bf16)))
}
)");
}

// One of two products that cannot share a tile is kept, in fp32; the other stays where it is.
TEST(SplitProgram, OneOfTwoProductsIsKept) {
  EXPECT_EQ(split_text(R"(program gated {
    a = gemm(x[M, K]:bf16, w[N, K]:bf16)
    b = gemm(z[M, K]:bf16, v[N, K]:bf16)
    store(y:bf16, silu(a) * b + tile(r[M, N]:bf16))
  })",
                       {{"M", 5}, {"N", 24}, {"K", 8}}),
            R"(program gated_part1 {
  kept1 = gemm(z[M, K]:bf16, v[N, K]:bf16)
  store(kept1, kept1)
}
program gated_part2 {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16)
  kept1 = tile(kept1[M, N])
  store(y:bf16, silu(acc) * kept1 + tile(r[M, N]:bf16))
}
)");
}

// Segments of one product that are stored in different orders.
TEST(SplitProgram, SegmentsOfOtherLayoutsAreProductsOfTheirOwn) {
  EXPECT_EQ(split_text(R"(program sum {
    store(y:bf16, gemm(x[M, K]:bf16, w[N, K]:bf16; z[M, L]:bf16, v[L, N]:bf16; u[M, K]:bf16, w))
  })",
                       {{"M", 5}, {"N", 24}, {"K", 8}, {"L", 16}}),
            R"(program sum_part1 {
  kept1 = gemm(z[M, L]:bf16, v[L, N]:bf16)
  store(kept1, kept1)
}
program sum_part2 {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16; u[M, K]:bf16, w)
  store(y:bf16, acc + tile(kept1[M, N]))
}
)");
}

// What one norm of each head needs is kept once, and tile spaces that fit stay in the first part.
// No tile holds heads of 512, nor a warp of a kernel without a product: their sums stand alone.
TEST(SplitProgram, OnlySpacesThatDoNotFitAreSplit) {
  EXPECT_EQ(split_text(R"(program heads {
    q = gemm(x[M, K]:bf16, wq[512*H, K]:bf16) * per_row(rstd[M])
    store(q:bf16, q * repeat_group(rsqrt(reduce_group(q * q, 512) + 1e-6), 512))
    store(v:bf16, gemm(x, wv[32*H, K]:bf16) * per_row(rstd))
  })",
                       {{"M", 5}, {"H", 3}, {"K", 8}}),
            R"(program heads_part1 {
  acc = gemm(x[M, K]:bf16, wq[512*H, K]:bf16)
  store(kept1, acc * per_row(rstd[M]))
  acc_2 = gemm(x, wv[32*H, K]:bf16)
  store(v:bf16, acc_2 * per_row(rstd))
}
program heads_part2 {
  kept1 = tile(kept1[M, 512*H])
  store(kept2, kept1 * kept1)
}
program heads_part3 {
  store(kept3, reduce_group(tile(kept2[M, 512*H]), 512))
}
program heads_part4 {
  store(q:bf16, tile(kept1[M, 512*H]) * repeat_group(rsqrt(tile(kept3[M, H]) + 1e-06), 512))
}
)");
}

// Plans whose blocks norm each head: no program is split.
TEST(SplitProgram, PlansWithNormsOfHeadsRun) {
  for (const DType storage : {DType::bf16, DType::f16}) {
    Block b;
    b.storage = storage;
    tests::head_norm_block(b, {.hidden = 256,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 64,
                               .mlp = 344,
                               .vocab = 504,
                               .sequence = 20});
    CompileOptions options;
    options.sizes = {{"M", 160}};
    options.storage = storage;
    options.rates = h200_rates();
    const Plan plan = compile(b.graph, b.request, options).plan;
    for (const auto* steps : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *steps) {
        const auto* program = std::get_if<Program>(&step.work);
        if (program == nullptr) continue;
        const std::vector<KernelLaunch> launches = lower(*program, options.sizes, {});
        EXPECT_EQ(launches.front().note, "");
      }
    }
  }
}

Program random_16_bit_program(const tests::RandomProgram& random, uint64_t seed) {
  return with_16_bit_operands(random.program, seed % 2 == 0 ? DType::bf16 : DType::f16);
}

// Where threads move more than two tensors themselves, pairs of elements take turns.
TEST(SplitProgram, PairsTakeTurnsWhereThreadsMoveManyTensors) {
  const DimValues sizes{{"M", 64}, {"N", 64}, {"K", 64}};
  const auto takes_turns = [&](const std::string& stores) {
    const Program program = parse_program(
        "program p { acc = gemm(x[M, K]:bf16, w[N, K]:bf16)\nstore(a, acc)\n"
        "store(b, acc * 2)\nstore(c:bf16, acc)\n" +
        stores + "}");
    return lower(program, sizes, {}).front().source.find("sub.turn") != std::string::npos;
  };
  EXPECT_FALSE(takes_turns(""));
  EXPECT_TRUE(takes_turns("store(d, acc * 3)"));
}

// Eight planes of a tile pass through shared memory; what it cannot hold is moved by threads, so
// that no number of matrices makes a program too large for it.
TEST(SplitProgram, MatricesBeyondSharedMemoryAreMovedByThreads) {
  constexpr int kStaged = 8;
  std::string text = "program many { acc = gemm(x[M, K]:bf16, w[N, K]:bf16)\n";
  for (int i = 0; i < 14; ++i) {
    const std::string own = std::to_string(i);
    text += "store(o" + own + ":bf16, acc * tile(t" + own + "[M, N]:bf16))\n";
  }
  const Program program = parse_program(text + "}");
  const std::vector<KernelLaunch> kernels = lower(program, {{"M", 512}, {"N", 512}, {"K", 64}}, {});
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels.front().note, "");
  const std::string& source = kernels.front().source;
  const auto count = [&](std::string_view word) {
    int found = 0;
    for (size_t at = source.find(word); at != std::string::npos; at = source.find(word, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("tma_load_once("), kStaged);
  EXPECT_EQ(count("tma_store_once("), kStaged);
  EXPECT_EQ(count("= load_pair<"), 14 - kStaged);
  EXPECT_EQ(count(" store_pair<"), 14 - kStaged);
}

// Sums of columns are kept in registers through a sub-tile: 24 of them are more than any tile has.
TEST(SplitProgram, AnEpilogueOfTooManyValuesSaysSoAndIsSplit) {
  const DimValues sizes{{"M", 128}, {"N", 128}, {"K", 64}};
  const auto sums = [](int count) {
    std::string text = "program sums { acc = gemm(x[M, K]:bf16, w[N, K]:bf16)\n";
    for (int i = 0; i < count; ++i) {
      const std::string own = std::to_string(i);
      text += "t" + own + " = tile(in" + own + "[M, N]:f32)\n";
      text += "column_partial(c" + own + ", sum(t" + own + " * acc))\n";
    }
    return parse_program(text + "}");
  };
  EXPECT_EQ(lower(sums(12), sizes, {}).front().note, "");
  const Program program = sums(24);
  EXPECT_THAT(lower(program, sizes, {}).front().note,
              HasSubstr("program 'sums' is split into 2, since no kernel holds it: the epilogue of "
                        "tile space 0 fits into no tile: it has more values than 232 registers a "
                        "thread; most take "));
  expect_equal(program, programs_of(split_to_fit(program, sizes, {})), sizes, 1);
}

// These, whole and split, spilled with as few as 32 accumulators in 232 registers: the assembler
// had loaded for all pairs of a sub-tile before it worked on the first.
TEST(SplitProgram, KernelsThatMoveManyTensorsDoNotSpill) {
  std::set<std::string> texts;
  for (const uint64_t seed : tests::seeds_of("CODA_SPLIT_SEEDS", {4, 77, 268})) {
    const tests::RandomProgram random = tests::random_program(seed);
    for (const KernelLaunch& launch :
         lower(random_16_bit_program(random, seed), random.sizes, {})) {
      if (!launch.maps.empty()) texts.insert(launch.source);
    }
  }
  expect_no_defects(texts);
}

// Whatever a program has of products, layouts, pairs, groups and reductions, it becomes kernels.
// CODA_SPLIT_SEEDS=FIRST-LAST runs others.
TEST(SplitProgram, RandomProgramsAllRun) {
  std::vector<uint64_t> usual(300);
  std::iota(usual.begin(), usual.end(), 0);
  int count = 0;
  for (const uint64_t seed : tests::seeds_of("CODA_SPLIT_SEEDS", usual)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Program program = random_16_bit_program(random, seed);
    std::vector<KernelLaunch> launches;
    try {
      launches = lower(program, random.sizes, {});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << text(program);
      continue;
    }
    if (launches.front().note.empty()) continue;
    ++count;
    const LoweredParts parts = split_to_fit(program, random.sizes, {});
    ASSERT_FALSE(parts.parts.empty());
    expect_equal(program, programs_of(parts), random.sizes, seed);
  }
  std::printf("%d random programs were split\n", count);
  EXPECT_GT(count, 0);
}

// Operands of any types, fp32 and two that differ too: what tensor cores do not multiply is made by
// a plain kernel, and the rest reads it.
TEST(SplitProgram, RandomProgramsOfAnyTypesAllRun) {
  std::vector<uint64_t> usual(100);
  std::iota(usual.begin(), usual.end(), 0);
  for (const uint64_t seed : tests::seeds_of("CODA_SPLIT_SEEDS", usual)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    try {
      if (lower(random.program, random.sizes, {}).front().note.empty()) continue;
      const LoweredParts parts = split_to_fit(random.program, random.sizes, {});
      expect_equal(random.program, programs_of(parts), random.sizes, seed);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << "\n" << text(random.program);
    }
  }
}

}  // namespace
}  // namespace coda::gpu
