// SPDX-License-Identifier: Apache-2.0
// Emitted kernels of tile spaces without a product: on the CPU they compute what their programs
// mean, with vectors and element by element, for all plans and for random programs; NVRTC makes of
// them kernels without a defect.
#include "gpu/lower.h"
#include "gpu/lower_whole.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/seeds.h"
#include "coda/error.h"
#include "gpu/clean_kernels.h"
#include "gpu/host_run.h"
#include "gpu/vector_kernels.h"
#include "gpu/vector_programs.h"

namespace coda::gpu {
namespace {

constexpr const char* kRotation = R"(program rotation_backward {
  cos = tile(cos[16, 32], rows=position[M]:i32, repeat=3)
  sin = tile(sin[16, 32], rows=position, repeat=3)
  dq = tile(dq[M, 192]:bf16)
  first, second = split_pairs(dq, 64)
  rotated = merge_pairs(cos * first + sin * second, cos * second - sin * first, 64)
  store(dq, rotated)
  row_partial(p, sum(dq * tile(q[M, 192]:bf16)))
})";

// Widths of whole vectors make rows of whole vectors with a gap of 8, and none with a gap of 3.
constexpr int64_t kGaps[] = {8, 3};

void expect_right(const Program& program, const DimValues& sizes, uint64_t seed) {
  const Values inputs = tests::random_inputs(program, sizes, seed);
  for (const int64_t gap : kGaps) {
    SCOPED_TRACE("gap " + std::to_string(gap));
    expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, {gap}));
  }
}

// A copy of bytes is what the same value stored by rows is, code by code.
void expect_copies(const Program& program, const DimValues& sizes, const Values& inputs,
                   int64_t gap) {
  const Values results = run_on_host(program, sizes, inputs, {gap});
  const Values reference = program::evaluate(program, sizes, inputs, {.round_stored = true});
  for (const Step& step : program.steps) {
    if (!program::is_effect(step)) continue;
    const TensorDecl& decl = program.tensors[static_cast<size_t>(step.tensor())];
    // One code to the side of a tie is 12 % of an element, in few of them.
    const double bound = size_of(decl.dtype) == 1    ? 5e-3
                         : decl.dtype == DType::bf16 ? 1e-3 + 0x1p-9
                                                     : 1e-3;
    EXPECT_LE(relative_error(results.at(decl.name), reference.at(decl.name)), bound)
        << decl.name << "\n"
        << text(program);
  }
}

// CODA_TILE_SEEDS=FIRST-LAST runs others.
TEST(TileEmitter, RandomProgramsComputeWhatTheyMean) {
  for (const uint64_t seed : tests::seeds_of("CODA_TILE_SEEDS", tests::seeds(1, 10))) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Program program = without_products(random.program);
    try {
      expect_right(program, random.sizes, seed);
    } catch (const Error& error) {
      // The one thing that is refused: pairs that cut groups.
      EXPECT_NE(std::string(error.what()).find("cut each other"), std::string::npos)
          << error.what() << "\n"
          << text(program);
    }
  }
}

// Bytes pass through shared memory in words; other types go one by one.
TEST(TileEmitter, TransposedCopiesAndMagnitudesAreWhatTheyMean) {
  for (const uint64_t seed : tests::seeds_of("CODA_TILE_SEEDS", tests::seeds(1, 10))) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    const Program program = tests::with_copies(without_products(random.program), seed);
    const Values inputs = tests::random_inputs(program, random.sizes, seed);
    try {
      for (const int64_t gap : kGaps) expect_copies(program, random.sizes, inputs, gap);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("cut each other"), std::string::npos)
          << error.what();
    }
  }
  const char* quantise = R"(program quantise {
    x = tile(x[M, N]:bf16)
    y = x * scalar(scale)
    store(rows:e4m3, y)
    store_transposed(columns:e4m3, y)
    abs_max_into(largest, x)
  })";
  for (const int64_t rows : {1, 16, 63, 64, 65, 150}) {
    for (const int64_t columns : {1, 8, 255, 256, 264}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const Program program = parse_program(quantise);
      const DimValues sizes{{"M", rows}, {"N", columns}};
      const Values inputs = tests::random_inputs(program, sizes, 3);
      for (const int64_t gap : kGaps) expect_copies(program, sizes, inputs, gap);
    }
  }
}

// Each has scratch memory of its own: no thread waits between the two, so a warp that is ahead
// would write over what the first warp has yet to read. host_kernel.h holds a warp right there.
TEST(TileEmitter, MagnitudesOfSeveralValuesOfATile) {
  const Program program = parse_program(R"(program magnitudes {
    x = tile(x[M, N]:bf16)
    abs_max_into(first, x)
    abs_max_into(second, x * 1000)
    abs_max_into(third, x * 0.001)
  })");
  for (const int64_t rows : {64, 700}) {
    const DimValues sizes{{"M", rows}, {"N", 256}};
    const Values inputs = tests::random_inputs(program, sizes, 3);
    for (const int64_t gap : kGaps) expect_copies(program, sizes, inputs, gap);
  }
}

TEST(TileEmitter, ProgramsOfPlansComputeWhatTheyMean) {
  const LlamaSizes sizes{.hidden = 144,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 48,
                         .mlp = 80,
                         .vocab = 137,
                         .sequence = 35};
  for (const PlanProgram& p : plan_programs(DType::bf16, sizes, 70)) {
    if (p.role != StepRole::tile) continue;
    SCOPED_TRACE(p.name);
    expect_right(p.program, p.sizes, 1);
  }
}

// Pairs whose members are neighbours, sixteen columns a thread: loaded, made from narrow values,
// gathered with rows that repeat, selected, reduced, in place, in 16 and 32 bits.
constexpr const char* kAdjacent[] = {
    R"(program rope {
  a, b = split_pairs(tile(x[M, 96]:bf16), 2)
  cos = tile(cos[S, 16], rows=position[M]:i32, repeat=3)
  sin = tile(sin[S, 16]:bf16, rows=position, repeat=3)
  store(y:bf16, merge_pairs(a * cos - b * sin, b * cos + a * sin, 2))
})",
    R"(program mixed {
  x = tile(x[M, 96])
  w = tile(table[S, 32]:f16, rows=position[M]:i32, repeat=3)
  a, b = split_pairs(x * w + per_column(bias[96]) + column_index(), 2)
  y = merge_pairs(b, a * 0.5, 2)
  store(x, x + y)
  store(z:f16, a + b)
  row_partial(p, sum(y))
  column_partial(q, max(y))
  store(chosen, select_column(y, per_row(target[M]:i32)))
})"};

TEST(TileEmitter, AdjacentPairsComputeWhatTheyMean) {
  for (const char* program : kAdjacent) {
    for (const int64_t rows : {1, 5, 70}) {
      expect_right(parse_program(program), {{"M", rows}, {"S", 9}}, 7);
    }
  }
  const char* ragged =
      "program odd { a, b = split_pairs(tile(x[M, 2*N]:bf16), 2)\n"
      "store(y:bf16, merge_pairs(b, a, 2)) }";
  for (const int64_t columns : {1, 7, 8, 67, 136}) {
    expect_right(parse_program(ragged), {{"M", 3}, {"N", columns}}, 8);
  }
}

// The index is anything from the first column to one behind the last, which selects 0: columns that
// are loaded eight at a time, and such that are not.
TEST(TileEmitter, EveryColumnIsSelected) {
  for (const int64_t columns : {136, 131}) {
    const Program program = parse_program(
        "program select { store(chosen, select_column(tile(x[M, N]), per_row(target[M]:i32))) }");
    const DimValues sizes{{"M", columns + 1}, {"N", columns}};
    Values inputs = tests::random_inputs(program, sizes, 10);
    std::iota(inputs.at("target").begin(), inputs.at("target").end(), 0.0);
    for (const int64_t gap : kGaps) {
      const Values results = run_on_host(program, sizes, inputs, {gap});
      for (int64_t row = 0; row <= columns; ++row) {
        const auto at = static_cast<size_t>(row);
        const double expected = row < columns ? inputs.at("x")[at * columns + at] : 0;
        ASSERT_EQ(results.at("chosen")[at], static_cast<float>(expected)) << row;
      }
    }
  }
}

// A program that only reduces has four rows in flight; their partials are written by a lane each.
TEST(TileEmitter, RowsAreReduced) {
  for (int i = 0; i < kPartialKindCount; ++i) {
    const std::string kind(info(static_cast<PartialKind>(i)).name);
    SCOPED_TRACE(kind);
    const Program program =
        parse_program("program rows { row_partial(p, " + kind + "(tile(x[M, N]:bf16))) }");
    for (const int64_t rows : {1, 3, 4, 6, 37}) {
      for (const int64_t columns : {1, 8, 63, 72, 200}) {
        expect_right(program, {{"M", rows}, {"N", columns}}, 9);
      }
    }
  }
}

// Masked values weigh nothing, and large ones that differ little keep the digits of their entropy,
// in the partials and in what a finalizer makes of them.
TEST(TileEmitter, EntropiesOfMaskedAndOfLargeValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Program partials = parse_program("program p { row_partial(p, entropy(tile(x[M, N]))) }");
  const Program finalizer = parse_program(
      "program f {\n  store(e, combine_rows(entropy(p[M, N]), entropy))\n"
      "  store(lse, combine_rows(entropy(p), log_sum_exp))\n}");
  const DimValues sizes{{"M", 3}, {"N", 200}};
  std::vector<double> x(size_t{3} * 200, -infinity);
  for (const size_t j : {70, 71, 190, 191}) x[j] = 2;
  for (size_t j = 0; j < 200; ++j) x[200 + j] = 30000 + static_cast<double>(j % 2);
  const double p = 1 / (1 + std::exp(-1));
  const double large = std::log(100) - p * std::log(p) - (1 - p) * std::log(1 - p);
  for (const int64_t gap : kGaps) {
    const Values left = run_on_host(partials, sizes, {{"x", x}}, {gap});
    const Values results = run_on_host(finalizer, sizes, left, {gap});
    EXPECT_NEAR(results.at("e")[0], std::log(4), 1e-6);
    EXPECT_NEAR(results.at("e")[1], large, 2e-5);
    EXPECT_TRUE(std::isnan(results.at("e")[2]));
    EXPECT_NEAR(results.at("lse")[0], 2 + std::log(4), 1e-6);
    EXPECT_NEAR(results.at("lse")[1], 30001 + std::log(100 / p), 0.002);
    EXPECT_EQ(results.at("lse")[2], -infinity);
  }
}

// Where values are infinite or so large that their powers of two are not known as floats, for
// example masked with the least number that there is, the sum is 1: its logarithm counts no more.
TEST(TileEmitter, LogSumExpOfTheLargestNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Program program =
      parse_program("program rows { row_partial(p, log_sum_exp(tile(x[M, N]))) }");
  for (const double large : {infinity, 0x1.fp127, 0x1p127, 0x1p66, 1e10, 0x1p30}) {
    for (const std::vector<double>& row :
         {std::vector<double>{-large, -large}, {large, 1}, {-large, large}}) {
      const double largest = std::max(row[0], row[1]);
      for (const int64_t gap : kGaps) {
        const Values results = run_on_host(program, {{"M", 1}, {"N", 2}}, {{"x", row}}, {gap});
        EXPECT_EQ(results.at("p"), (std::vector<double>{largest, 1})) << row[0] << ", " << row[1];
      }
    }
  }
  // The next value below counts where it still can.
  const Values results =
      run_on_host(program, {{"M", 2}, {"N", 2}}, {{"x", {-1e6, -1e6, 1e6, 999999}}}, {4});
  EXPECT_NEAR(results.at("p")[2], 2, 1e-5);
  EXPECT_NEAR(results.at("p")[3], 1 + std::exp(-1.0), 1e-5);
}

// Sizes of the text's numbers, not of the text: one text serves every number of rows.
// Bit by bit, because a step function has no tolerance.
TEST(TileEmitter, StochasticRoundingHasTheBitsOfTheDefinition) {
  const Program program = parse_program(R"(program rounded {
  u = random(scalar(noise) + 1, per_row(rows[M]), column_index())
  store(y:bf16, stochastic_bf16(tile(x[M, N]), u))
})");
  for (const int64_t columns : {512, 300}) {
    const DimValues sizes{{"M", 5}, {"N", columns}};
    Values inputs = tests::random_inputs(program, sizes, 3);
    inputs["noise"] = {16777208};  // 2^24 - 8
    inputs["rows"] = {0, 1, 2, 77, 16777215};
    inputs["x"][3] = std::numeric_limits<double>::infinity();
    EXPECT_EQ(run_on_host(program, sizes, inputs, {8}).at("y"),
              program::evaluate(program, sizes, inputs).at("y"));
  }
}

TEST(TileEmitter, TextDoesNotDependOnRows) {
  const Program program = parse_program(kRotation);
  const std::string text = lower(program, {{"M", 4096}}, {}).front().source;
  for (const int64_t rows : {1, 3, 65536}) {
    EXPECT_EQ(lower(program, {{"M", rows}}, {}).front().source, text);
  }
}

TEST(TileEmitter, GoldenText) {
  expect_golden("rotation_backward.cu", lower(parse_program(kRotation), {{"M", 64}}, {}));
}

TEST(TileEmitter, RefusesGroupsThatNoWarpHolds) {
  const Program program = parse_program(R"(program p {
    x = tile(x[M, 192])
    store(y, x * repeat_group(reduce_group(x, 96), 96))
  })");
  const auto refusal = why_not_whole(program, {{"M", 4}}, {});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(text(*refusal, program, {{"M", 4}}),
            "program 'p', step 1, v1 = reduce_group(v0): a group of 96 base columns is not held by "
            "a warp; groups are powers of two up to 256 columns");
}

// What lies between rows is NaN, and NaN is all that such a program makes of it.
TEST(TileEmitter, PaddingOfItsOwnIsWorkedOnAsVectorsWhereColumnsAreApart) {
  const std::string stored = "  y = exp(tile(x[M, 50]:bf16) - per_row(r[M]))\n  store(x, y)\n";
  const DimValues sizes{{"M", 5}};
  LowerOptions options;
  for (const bool owns : {true, false}) {
    for (const std::string also : {"", "  row_partial(p, sum(y))\n"}) {
      SCOPED_TRACE(also + std::to_string(owns));
      const Program program = parse_program("program p {\n" + stored + also + "}\n");
      options.owns_padding = owns;
      options.row_strides = {56, 1};
      if (!also.empty()) options.row_strides.push_back(2);  // of partials
      const std::vector<uint32_t> numbers = lower(program, sizes, options).front().numbers;
      const uint32_t columns = owns && also.empty() ? 56 : 50;
      EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 50), columns == 50 ? 1 : 0);
      const Values inputs = tests::random_inputs(program, sizes, 1);
      const HostRows rows{.gap = 0, .multiple = 8};
      options.row_strides.clear();  // by `rows`
      expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, rows, options));
    }
  }
}

// Rows that begin at multiples of 16 bytes and end within one: only the blocks of the last columns
// move single elements.
TEST(TileEmitter, ColumnsBeforeARaggedEndAreVectors) {
  for (const std::string reduced : {"row_partial(p, sum(y))", "column_partial(p, sum(y))"}) {
    const Program program = parse_program(
        "program p {\n  y = exp(tile(x[M, N]:bf16) - per_row(r[M])) * per_column(c[N])\n"
        "  store(z:bf16, y)\n  " +
        reduced + "\n}\n");
    for (const int64_t columns : {300, 2117, 4101}) {
      SCOPED_TRACE(reduced + ", " + std::to_string(columns));
      const DimValues sizes{{"M", 70}, {"N", columns}};
      const Values inputs = tests::random_inputs(program, sizes, 1);
      expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, {.multiple = 8}));
    }
  }
}

TEST(TileEmitter, AdjacentPairsCompile) {
  std::set<std::string> sources;
  for (const char* program : kAdjacent) {
    for (const KernelLaunch& launch : lower(parse_program(program), {{"M", 64}, {"S", 9}}, {})) {
      sources.insert(launch.source);
    }
  }
  expect_no_defects(sources);
}

// Every kernel of the plans, as large models have them, compiles without a defect.
TEST(TileEmitter, ProgramsOfPlansCompile) { expect_compile(StepRole::tile); }

}  // namespace
}  // namespace coda::gpu
