// SPDX-License-Identifier: Apache-2.0
// Emitted kernels of tile spaces without a product: on the CPU they compute what their programs
// mean, with vectors and element by element, for all plans and for random programs; NVRTC makes of
// them kernels without a defect.
#include "hopper/tile_emitter.h"

#include <gtest/gtest.h>

#include "coda/error.h"
#include "hopper/host_run.h"
#include "hopper/nvrtc.h"
#include "hopper/vector_programs.h"

namespace coda::hopper {
namespace {

// Widths of whole vectors make rows of whole vectors with a gap of 8, and none with a gap of 3.
constexpr int64_t kGaps[] = {8, 3};

void expect_right(const Program& program, const DimValues& sizes, uint64_t seed) {
  const Values inputs = testing::random_inputs(program, sizes, seed);
  for (const int64_t gap : kGaps) {
    SCOPED_TRACE("gap " + std::to_string(gap));
    expect_close(program, sizes, inputs, run_on_host(lower_tiles, program, sizes, inputs, gap));
  }
}

// CODA_TILE_SEEDS=FIRST-LAST runs others.
TEST(TileEmitter, RandomProgramsComputeWhatTheyMean) {
  uint64_t first = 1;
  uint64_t last = 10;
  if (const char* seeds = std::getenv("CODA_TILE_SEEDS")) {
    ASSERT_EQ(std::sscanf(seeds, "%lu-%lu", &first, &last), 2);
  }
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const testing::RandomProgram random = testing::random_program(seed);
    const Program program = without_products(random.program);
    try {
      expect_right(program, random.sizes, seed);
    } catch (const Error& error) {
      // The one thing that is refused: pairs that cut groups.
      EXPECT_NE(std::string(error.what()).find("cut each other"), std::string::npos)
          << error.what() << "\n" << text(program);
    }
  }
}

TEST(TileEmitter, ProgramsOfPlansComputeWhatTheyMean) {
  const LlamaSizes sizes{.hidden = 144, .heads = 3, .kv_heads = 1, .head_dim = 48, .mlp = 80,
                         .vocab = 137, .sequence = 35};
  for (const PlanProgram& p : plan_programs(DType::bf16, sizes, 70)) {
    if (p.role != StepRole::tile) continue;
    SCOPED_TRACE(p.name);
    expect_right(p.program, p.sizes, 1);
  }
}

}  // namespace
}  // namespace coda::hopper
