// SPDX-License-Identifier: Apache-2.0
// Emitted kernels of programs over vectors: on the CPU they compute what their programs mean, in
// one launch or two, for all plans and for random programs.
#include "gpu/lower.h"

#include <gtest/gtest.h>

#include "base/seeds.h"
#include "gpu/host_run.h"
#include "gpu/vector_kernels.h"
#include "gpu/vector_programs.h"

namespace coda::gpu {
namespace {

// Rows that begin at 16 bytes where their lengths allow it, and rows that do not.
constexpr int64_t kFinalizerGaps[] = {4, 3};

void expect_finalized(const Program& program, const DimValues& sizes, uint64_t seed) {
  const Values inputs = tests::random_inputs(program, sizes, seed);
  for (const int64_t gap : kFinalizerGaps) {
    SCOPED_TRACE("gap " + std::to_string(gap));
    expect_close(program, sizes, inputs, run_on_host(program, sizes, inputs, {gap}));
  }
}

// CODA_FINALIZER_SEEDS=FIRST-LAST runs others.
TEST(FinalizerEmitter, RandomProgramsComputeWhatTheyMean) {
  for (const uint64_t seed : tests::seeds_of("CODA_FINALIZER_SEEDS", tests::seeds(1, 12))) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    if (random.finalizer) expect_finalized(*random.finalizer, random.sizes, seed);
  }
}

TEST(FinalizerEmitter, ProgramsOfPlansComputeWhatTheyMean) {
  const LlamaSizes sizes{.hidden = 144,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 48,
                         .mlp = 80,
                         .vocab = 137,
                         .sequence = 35};
  for (const PlanProgram& p : plan_programs(DType::bf16, sizes, 70)) {
    if (p.role != StepRole::finalizer) continue;
    SCOPED_TRACE(p.name);
    expect_finalized(p.program, p.sizes, 1);
  }
}

// As the loss of a large vocabulary: the rows by many blocks, their sum by one, which reads them
// back.
constexpr const char* kLoss = R"(program loss {
  largest = combine_rows(log_sum_exp(p[M, V]), max)
  log_sum = combine_rows(log_sum_exp(p), log_sum)
  rows = select(per_row(counts[M]), largest + log_sum - per_row(target[M]), 0)
  store(rows, rows)
  store(mean, reduce_vector(rows) * scalar(factor))
})";

TEST(FinalizerEmitter, SumsOfStoredRowsAreASecondLaunch) {
  const auto launches = lower(parse_program(kLoss), {{"M", 16384}, {"V", 128256}}, {});
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].grid, 16384U / 8);
  EXPECT_EQ(launches[1].grid, 1U);
  EXPECT_EQ(launches[1].source.find("combine_in"), std::string::npos);
}

// What is stored in place is read before, also for a sum.
TEST(FinalizerEmitter, StoresInPlaceAfterSums) {
  const Program program = parse_program(R"(program in_place {
    rows = combine_rows(sum(p[M, N]))
    mean = reduce_vector(rows) * 0.5
    store(v, per_row(v[M]) * mean + rows)
    store(total, scalar(total) + mean)
    store(w, per_column(w[N]) * mean)
  })");
  for (const int64_t rows : {1, 70, 1100}) expect_finalized(program, {{"M", rows}, {"N", 700}}, 1);
}

// Few and many partials of a line (8 lanes or 32, 256 threads or 512), whole vectors of them and
// not, and as many lines.
TEST(FinalizerEmitter, ManyPartials) {
  constexpr const char* kResults[] = {"sum(%)",         "max(%)",     "log_sum_exp(%), log_sum",
                                      "mean_m2(%), m2", "abs_max(%)", "entropy(%), entropy"};
  for (const std::string result : kResults) {
    SCOPED_TRACE(result);
    const auto of = [&](const std::string& tensor) {
      return std::string(result).replace(result.find('%'), 1, tensor);
    };
    const Program program =
        parse_program("program many {\n  store(r, combine_rows(" + of("p[M, N]") +
                      "))\n  store(c, combine_columns(" + of("q[L, C]") + "))\n}");
    expect_finalized(program, {{"M", 5}, {"N", 64 * 133 - 12}, {"L", 64 * 300}, {"C", 20}}, 2);
    expect_finalized(program, {{"M", 9}, {"N", 64 * 148}, {"L", 64 * 520 - 3}, {"C", 36}}, 3);
    expect_finalized(program, {{"M", 33}, {"N", 64 * 20}, {"L", 65}, {"C", 70}}, 4);
    expect_finalized(program, {{"M", 1}, {"N", 1}, {"L", 1}, {"C", 1}}, 5);
  }
}

// The same bits whether or not four neighbours are 16 bytes.
TEST(FinalizerEmitter, BitsDoNotDependOnAlignment) {
  const Program program = parse_program(
      "program bits {\n  store(r, combine_rows(sum(p[M, N])))\n"
      "  store(c, combine_columns(sum(q[L, C])))\n}");
  const DimValues sizes{{"M", 7}, {"N", 64 * 148}, {"L", 64 * 77}, {"C", 36}};
  const Values inputs = tests::random_inputs(program, sizes, 6);
  EXPECT_EQ(run_on_host(program, sizes, inputs, {4}), run_on_host(program, sizes, inputs, {3}));
}

TEST(FinalizerEmitter, ProgramsOfPlansCompile) { expect_compile(StepRole::finalizer); }

}  // namespace
}  // namespace coda::gpu
