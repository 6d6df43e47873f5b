// SPDX-License-Identifier: Apache-2.0
// Tile spaces: which steps are computed together, and what their base columns are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/program.h"
#include "program/random_program.h"

namespace coda {
namespace {

using ::testing::ElementsAre;

std::vector<TileSpace> spaces_of(const std::string& body) {
  return tile_spaces(parse_program("program p {\n" + body + "\n}"));
}

TEST(TileSpaces, ValuesThatMeetElementwiseShareOne) {
  const auto spaces = spaces_of(R"(
    gate = gemm(h[M, D], wg[I, D])
    up = gemm(h, wu[I, D])
    store(a, silu(gate) * up))");
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", "I"}));
  EXPECT_THAT(spaces[0].steps, ElementsAre(0, 1, 2, 3, 4));
}

TEST(TileSpaces, SharedVectorsAreListedInEachAndJoinNothing) {
  const auto spaces = spaces_of(R"(
    r = rsqrt(per_row(ss[M]) + 1e-5)
    q = gemm(h[M, D], wq[Q, D]) * r
    store(q, q)
    k = gemm(h, wk[K, D]) * r
    store(k, k))");
  ASSERT_EQ(spaces.size(), 2u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", "Q"}));
  EXPECT_EQ(spaces[1].shape, (Shape{"M", "K"}));
  EXPECT_THAT(spaces[0].steps, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(spaces[1].steps, ElementsAre(0, 1, 2, 3, 7, 8, 9));
}

TEST(TileSpaces, PairsHaveTheHalfWidthAsBase) {
  const auto spaces = spaces_of(R"(
    z = gemm(h[M, D], w[2*I, D])
    store(z, z)
    a, b = split_pairs(z, concatenated)
    store(o, a * b))");
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", "I"}));
}

TEST(TileSpaces, GroupsDoNotCountAsAWidth) {
  const auto spaces = spaces_of(R"(
    q = gemm(h[M, D], w[64*H, D])
    r = rsqrt(reduce_group(q * q, 64))
    a, b = split_pairs(q * repeat_group(r, 64), 64)
    store(o, merge_pairs(a - b, a + b, 64))
    store(r, r))");
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", 32 * Dim("H")}));
}

TEST(TileSpaces, AGroupOfTheWholeRowStaysInTheTile) {
  const auto spaces = spaces_of(R"(
    q = tile(q[M, 64])
    store(o, q * repeat_group(rsqrt(reduce_group(q * q, 64)), 64)))");
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", 64}));
}

TEST(TileSpaces, FinalizersAreOrderedByWhatTheyReduce) {
  const auto spaces = spaces_of(R"(
    loss = combine_rows(sum(p[M, N]))
    total = reduce_vector(loss)
    store(share, loss / total)
    store(dw, per_column(dw[K]) + combine_columns(sum(c[M, K]))))");
  ASSERT_EQ(spaces.size(), 4u);
  EXPECT_EQ(spaces[0].shape, (Shape{"M", 1}));
  EXPECT_THAT(spaces[0].steps, ElementsAre(0));
  EXPECT_EQ(spaces[1].shape, (Shape{1, "K"}));
  EXPECT_THAT(spaces[1].steps, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(spaces[2].shape, (Shape{1, 1}));
  EXPECT_THAT(spaces[2].steps, ElementsAre(1));
  EXPECT_EQ(spaces[3].shape, (Shape{"M", 1}));
  EXPECT_THAT(spaces[3].steps, ElementsAre(2, 3));
}

TEST(TileSpaces, EveryStepStandsInASpaceAndUsesOnlyItsOwnOrEarlierOnes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const tests::RandomProgram random = tests::random_program(seed);
    std::vector<const Program*> programs = {&random.program};
    if (random.finalizer) programs.push_back(&*random.finalizer);
    for (const Program* program : programs) {
      const bool has_tiles = program == &random.program;
      std::set<int> known;
      for (const TileSpace& space : tile_spaces(*program)) {
        EXPECT_TRUE(std::is_sorted(space.steps.begin(), space.steps.end()));
        const std::set<int> own(space.steps.begin(), space.steps.end());
        for (int i : space.steps) {
          for (int operand : program->steps[i].operands) {
            EXPECT_TRUE(own.contains(operand) || (!has_tiles && known.contains(operand)))
                << i << " uses " << operand;
          }
        }
        known.insert(own.begin(), own.end());
      }
      EXPECT_EQ(known.size(), program->steps.size());
    }
  }
}

}  // namespace
}  // namespace coda
