// SPDX-License-Identifier: Apache-2.0
// Emitted kernels of programs over vectors: on the CPU they compute what their programs mean, in one
// launch or two, for all plans and for random programs.
#include "hopper/finalizer_emitter.h"

#include <gtest/gtest.h>

#include "hopper/host_run.h"
#include "hopper/vector_programs.h"

namespace coda::hopper {
namespace {

void expect_right(const Program& program, const DimValues& sizes, uint64_t seed) {
  const Values inputs = testing::random_inputs(program, sizes, seed);
  expect_close(program, sizes, inputs, run_on_host(lower_finalizer, program, sizes, inputs, 3));
}

// CODA_FINALIZER_SEEDS=FIRST-LAST runs others.
TEST(FinalizerEmitter, RandomProgramsComputeWhatTheyMean) {
  uint64_t first = 1;
  uint64_t last = 12;
  if (const char* seeds = std::getenv("CODA_FINALIZER_SEEDS")) {
    ASSERT_EQ(std::sscanf(seeds, "%lu-%lu", &first, &last), 2);
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const testing::RandomProgram random = testing::random_program(seed);
    if (random.finalizer) expect_right(*random.finalizer, random.sizes, seed);
  }
}

TEST(FinalizerEmitter, ProgramsOfPlansComputeWhatTheyMean) {
  const LlamaSizes sizes{.hidden = 144, .heads = 3, .kv_heads = 1, .head_dim = 48, .mlp = 80,
                         .vocab = 137, .sequence = 35};
  for (const PlanProgram& p : plan_programs(DType::bf16, sizes, 70)) {
    if (p.role != StepRole::finalizer) continue;
    SCOPED_TRACE(p.name);
    expect_right(p.program, p.sizes, 1);
  }
}

}  // namespace
}  // namespace coda::hopper
