// SPDX-License-Identifier: Apache-2.0
// The elementwise table: names round trip, values at known points, and behaviour at the edges of
// the number range.
#include "coda/elementwise.h"
#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace coda {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

double run(Elementwise op, double a, double b = 0, double c = 0) {
  return info(op).evaluate(a, b, c);
}

TEST(Elementwise, NamesRoundTrip) {
  for (int i = 0; i < kElementwiseCount; ++i) {
    const auto op = static_cast<Elementwise>(i);
    EXPECT_EQ(info(op).op, op);
    EXPECT_EQ(elementwise_by_name(info(op).name), op);
  }
  EXPECT_EQ(elementwise_by_name("softmax"), std::nullopt);
}

// A base operation has one derivative an operand and no expansion, a composite one the opposite.
TEST(Elementwise, EveryRowIsComplete) {
  for (int i = 0; i < kElementwiseCount; ++i) {
    const ElementwiseInfo& row = info(static_cast<Elementwise>(i));
    SCOPED_TRACE(std::string(row.name));
    EXPECT_FALSE(row.name.empty());
    EXPECT_NE(row.evaluate, nullptr);
    ASSERT_GE(row.arity, 1);
    ASSERT_LE(row.arity, 3);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(row.derivatives[static_cast<size_t>(k)].empty(), !row.is_base() || k >= row.arity);
    }
  }
}

TEST(Elementwise, KnownValues) {
  EXPECT_EQ(run(Elementwise::select, 1, 2, 3), 2);
  EXPECT_EQ(run(Elementwise::select, 0, 2, 3), 3);
  EXPECT_EQ(run(Elementwise::less, 1, 2), 1);
  EXPECT_EQ(run(Elementwise::less, 2, 2), 0);
  EXPECT_EQ(run(Elementwise::equal, 2, 2), 1);
  EXPECT_EQ(run(Elementwise::less_equal, 2, 2), 1);
  EXPECT_EQ(run(Elementwise::less_equal, 3, 2), 0);
  EXPECT_EQ(run(Elementwise::not_equal, 2, 2), 0);
  EXPECT_EQ(run(Elementwise::not_equal, 2, 3), 1);
  EXPECT_EQ(run(Elementwise::relu, 4), 4);
  EXPECT_EQ(run(Elementwise::relu, -4), 0);
  EXPECT_EQ(run(Elementwise::abs, -4), 4);
  EXPECT_EQ(run(Elementwise::rsqrt, 4), 0.5);
  EXPECT_EQ(run(Elementwise::recip, 4), 0.25);
  EXPECT_EQ(run(Elementwise::sub, 4, 1), 3);
  EXPECT_EQ(run(Elementwise::div, 4, 8), 0.5);
  EXPECT_EQ(run(Elementwise::neg, 4), -4);
  EXPECT_DOUBLE_EQ(run(Elementwise::silu, 1), 0.7310585786300049);
  EXPECT_DOUBLE_EQ(run(Elementwise::gelu, 1), 0.8413447460685429);
  EXPECT_NEAR(run(Elementwise::gelu_tanh, 1), 0.8411919906082768, 1e-15);
}

TEST(Elementwise, StableFarOut) {
  EXPECT_EQ(run(Elementwise::sigmoid, -1000), 0);
  EXPECT_EQ(run(Elementwise::sigmoid, 1000), 1);
  EXPECT_EQ(run(Elementwise::silu, 1000), 1000);
  EXPECT_DOUBLE_EQ(run(Elementwise::silu, -50), -50 * std::exp(-50.0));
  EXPECT_NEAR(run(Elementwise::gelu, -10) / -7.619853024160527e-23, 1, 1e-12);  // -10 * Phi(-10)
}

TEST(Elementwise, MaxAndMinKeepNaN) {
  for (auto op : {Elementwise::max, Elementwise::min}) {
    EXPECT_TRUE(std::isnan(run(op, kNotANumber, 1)));
    EXPECT_TRUE(std::isnan(run(op, 1, kNotANumber)));
  }
  EXPECT_EQ(run(Elementwise::max, -kInf, 1), 1);
  EXPECT_EQ(run(Elementwise::min, -kInf, 1), -kInf);
}

TEST(Elementwise, OfNaNOnlyNotEqualHolds) {
  EXPECT_EQ(run(Elementwise::less_equal, kNotANumber, 1), 0);
  EXPECT_EQ(run(Elementwise::equal, kNotANumber, kNotANumber), 0);
  EXPECT_EQ(run(Elementwise::not_equal, kNotANumber, kNotANumber), 1);
  EXPECT_TRUE(std::isnan(run(Elementwise::relu, kNotANumber)));
  EXPECT_TRUE(std::isnan(run(Elementwise::abs, kNotANumber)));
}

// The known answers of the authors' Random123.
TEST(Elementwise, RandomNumbersArePhilox) {
  using Words = std::array<uint32_t, 2>;
  EXPECT_EQ(philox({0, 0}, 0), (Words{0xff1dae59, 0x6cd10df2}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes}, kOnes), (Words{0x2c3f628b, 0xab4fd7ad}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3}, 0x13198a2e), (Words{0xdd7ce038, 0xf62a4c12}));
  EXPECT_EQ(run(Elementwise::random, 0, 0, 0), (0xff1dae59 >> 8) * 0x1p-24);
  EXPECT_EQ(run(Elementwise::random, 0, 0, 1), (0x6cd10df2 >> 8) * 0x1p-24);
  EXPECT_NE(run(Elementwise::random, 0, 1, 0), run(Elementwise::random, 0, 0, 1));
  EXPECT_TRUE(std::isnan(run(Elementwise::random, 0, -1, 0)));
  EXPECT_TRUE(std::isnan(run(Elementwise::random, kNotANumber, 0, 0)));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double x = run(Elementwise::random, 7, i / 100, i % 100);
    EXPECT_TRUE(x >= 0 && x < 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
}

// Of all 2^16 words of noise, exactly as many round up as the discarded bits say.
TEST(Elementwise, StochasticRoundingIsUnbiasedAndLeavesWhatBf16Has) {
  const auto round = [](double x, double u) { return run(Elementwise::stochastic_bf16, x, u); };
  for (const double sign : {1.0, -1.0}) {
    for (const double share : {0.0, 0x1p-16, 0.25, 0.7001953125, 1 - 0x1p-16}) {
      const double x = sign * (1.5 + share * 0x1p-7);  // bf16 has 1.5 and 1.5 + 2^-7
      int up = 0;
      for (int noise = 0; noise < 1 << 16; ++noise) {
        const double rounded = round(x, noise * 0x1p-16);
        ASSERT_TRUE(rounded == sign * 1.5 || rounded == sign * (1.5 + 0x1p-7));
        if (std::abs(rounded) > 1.5) ++up;
      }
      EXPECT_EQ(up * 0x1p-16, share);
    }
  }
  constexpr double kLargest = 0x1.fep127;
  for (const double x : {0.0, -1.5, 0x1p-133, kLargest, kInf, -kInf})
    for (const double u : {0.0, 1 - 0x1p-24, 1.0, 2.0}) EXPECT_EQ(round(x, u), x);
  EXPECT_EQ(round(0x1p-133 * 1.5, 0), 0x1p-133);  // subnormal
  EXPECT_EQ(round(0x1p-133 * 1.5, 0.5), 0x1p-132);
  EXPECT_EQ(round(kLargest + 0x1p119, 1 - 0x1p-24), kInf);
  EXPECT_TRUE(std::isnan(round(kNotANumber, 0.5)));
  EXPECT_EQ(round(1.501, kNotANumber), round(1.501, -1));
}

TEST(Elementwise, SelectDoesNotReadTheOtherSide) {
  EXPECT_EQ(run(Elementwise::select, 1, 2, kNotANumber), 2);
  EXPECT_EQ(run(Elementwise::select, 0, kInf, 3), 3);
}

}  // namespace
}  // namespace coda
