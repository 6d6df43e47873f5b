// SPDX-License-Identifier: Apache-2.0
// What a person reads of a program: the formulas as they would be written by hand.
#include "coda/mathematics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coda {
namespace notation {
namespace {

using testing::ElementsAre;

std::vector<std::string> lines_of(const std::string& statements) {
  return mathematics(parse_program("program p {\n" + statements + "\n}\n"));
}

TEST(Mathematics, HasALineForEachStoredTensorAndPartial) {
  EXPECT_THAT(
      lines_of("acc = gemm(y0[M, D], wo[D, D], nt)\n"
               "x1 = acc + tile(x0[M, D])\n"
               "store(x1, x1)\n"
               "store(h1, x1 * per_column(w1[D]))\n"
               "row_partial(x1_squares, sum(x1 * x1))"),
      ElementsAre("of y0[M, D], wo[D, D], x0[M, D], w1[D] per column", "x1[M, D] = y0 · woᵀ + x0",
                  "h1[M, D] = x1 ⊙ w1", "x1_squares = row sums of x1²"));
}

TEST(Mathematics, BracketsWhatBindsLessTightly) {
  EXPECT_THAT(
      lines_of("store(y, (gemm(a[M, K], w[N, K]) + tile(c[M, N])) * per_row(r[M]) * 0.5)"),
      ElementsAre("of a[M, K], w[N, K], c[M, N], r[M] per row", "y[M, N] = 0.5 (a · wᵀ + c) ⊙ r"));
  EXPECT_THAT(lines_of("store(y, tile(a[M, N]) - (tile(b[M, N]) - 1) / 3 * -2)"),
              ElementsAre("of a[M, N], b[M, N]", "y[M, N] = a - (-2) (b - 1) / 3"));
}

TEST(Mathematics, NamesAValueThatIsUsedTwiceAndInNoTensor) {
  EXPECT_THAT(lines_of("z = gemm(a[M, K], w[K, N], nn)\nstore(y, silu(z) + z)"),
              ElementsAre("of a[M, K], w[K, N]", "v1 = a · w", "y[M, N] = silu(v1) + v1"));
}

// The stored gradient is read before: its name stands for what it was.
TEST(Mathematics, ATensorThatIsAddedToIsWhatItWasOnTheRight) {
  EXPECT_THAT(lines_of("z = tile(dw[N, K]) + gemm(dy[M, N], x[M, K])\nstore(dw, z)\n"
                       "row_partial(s, max(z))"),
              ElementsAre("of dw[N, K], dy[M, N], x[M, K]", "v1 = dw + dyᵀ · x", "dw[N, K] = v1",
                          "s = row maxima of v1"));
}

// Who takes log_sum for the log-sum-exp reads here that it is not.
TEST(Mathematics, SaysWhatAFinalizerTakesOfPartials) {
  EXPECT_THAT(lines_of("store(loss, combine_rows(log_sum_exp(p[M, N]), log_sum))"),
              ElementsAre("of p (partials of [M, N])", "loss[M] = logsumexp(p) - max(p)"));
  EXPECT_THAT(
      lines_of("store(r, rsqrt(combine_rows(sum(p[M, N])) * scalar(inv_d) + 1e-5))"),
      ElementsAre("of p (partials of [M, N]), inv_d", "r[M] = rsqrt(sum(p) ⊙ inv_d + 1e-05)"));
}

TEST(Mathematics, HasAllOperationsAndWholeLogSumExps) {
  EXPECT_THAT(lines_of("x = gemm(a[M, K], w[128*H, K])\n"
                       "store(y, where(x <= 0, abs(x), relu(x * per_column(v[128], repeat=H))))"),
              ElementsAre("of a[M, K], w[128*H, K], v[128] per column", "v1 = a · wᵀ",
                          "y[M, 128*H] = select(v1 ≤ 0, abs(v1), "
                          "relu(v1 ⊙ repeat columns(v, H times)))"));
  EXPECT_THAT(lines_of("store(loss, combine_rows(log_sum_exp(p[M, N]), log_sum_exp))"),
              ElementsAre("of p (partials of [M, N])", "loss[M] = logsumexp(p)"));
}

TEST(Mathematics, PairsAreSlices) {
  EXPECT_THAT(
      lines_of("g, u = split_pairs(gemm(a[M, K], w[2*I, K]), concatenated)\n"
               "store(y, silu(g) * u)"),
      ElementsAre("of a[M, K], w[2*I, K]", "v1 = a · wᵀ", "y[M, I] = silu(v1[:, :I]) ⊙ v1[:, I:]"));
  EXPECT_THAT(lines_of("g, _ = split_pairs(tile(z[M, 2*I]), interleaved)\nstore(y, g)"),
              ElementsAre("of z[M, 2*I]", "y[M, I] = z[:, 0::2]"));
}

}  // namespace
}  // namespace notation
}  // namespace coda
