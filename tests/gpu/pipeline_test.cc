// SPDX-License-Identifier: Apache-2.0
// A skip over n stages must end where n single steps end, for every ring length that is used.
#include "device/sm90/pipeline.cuh"

#include <gtest/gtest.h>

namespace coda::device {
namespace {

template <u32 kStages>
void expect_skips_equal_steps() {
  for (u32 start = 0; start < 2 * kStages; ++start) {
    PipelineState<kStages> stepped;
    for (u32 i = 0; i < start; ++i) stepped.advance();
    const PipelineState<kStages> from = stepped;
    for (u32 steps = 0; steps < 5 * kStages + 300; ++steps) {
      PipelineState<kStages> skipped = from;
      skipped.advance_by(steps);
      ASSERT_EQ(skipped, stepped) << kStages << " stages, " << steps << " steps from " << start;
      ASSERT_LT(skipped.stage, kStages);
      stepped.advance();
    }
  }
}

TEST(PipelineState, SkippingEqualsStepping) {
  expect_skips_equal_steps<1>();
  expect_skips_equal_steps<2>();
  expect_skips_equal_steps<3>();
  expect_skips_equal_steps<4>();
  expect_skips_equal_steps<5>();
  expect_skips_equal_steps<6>();
  expect_skips_equal_steps<8>();
  expect_skips_equal_steps<12>();
}

// A barrier's parity repeats every second lap, so within two laps each (stage, phase) is met once.
TEST(PipelineState, TwoLapsMeetEachPositionOnce) {
  constexpr u32 kStages = 4;
  int met[kStages][2] = {};
  PipelineState<kStages> state;
  for (u32 i = 0; i < 2 * kStages; ++i, state.advance()) ++met[state.stage][state.phase];
  for (const auto& phases : met) {
    EXPECT_EQ(phases[0], 1);
    EXPECT_EQ(phases[1], 1);
  }
}

}  // namespace
}  // namespace coda::device
