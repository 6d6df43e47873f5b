// SPDX-License-Identifier: Apache-2.0
// Initial values beside Box and Muller's formula in double precision, their distribution beside the
// normal one, and their bits, which are the same for any processor and number of threads.
#include "models/normal_numbers.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "cpu/instruction_sets.h"
#include "models/counter_random.h"

namespace coda {
namespace {

constexpr uint64_t kSeed = 3, kStream = 5;

std::vector<float> normal(size_t count, float mean = 0, float deviation = 1) {
  std::vector<float> values(count);
  fill_normal(kSeed, kStream, mean, deviation, values);
  return values;
}

TEST(NormalNumbers, AreBoxAndMullersOfTheSameBits) {
  const std::vector<float> values = normal(200000);
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint64_t word = random_bits(kSeed, kStream, i / 2);
    const float share = static_cast<float>(word >> 33) + 0.5F;  // of 2^31, to 24 bits
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(share) * 0x1p-31));
    // The quarter to the right, or that on top; the other sign of its long side; the angle in it.
    const auto low = static_cast<uint32_t>(word);
    const double angle = static_cast<int32_t>(low << 2) * 0x1p-31 * std::numbers::pi / 4;
    const double longer = (low >> 31 != 0 ? -1 : 1) * radius * std::cos(angle);
    const double shorter = radius * std::sin(angle);
    const bool is_upright = (low >> 30 & 1) != 0;
    ASSERT_NEAR(values[i], is_upright ? shorter : longer, 5e-7 * radius);
    ASSERT_NEAR(values[i + 1], is_upright ? longer : shorter, 5e-7 * radius);
  }
}

TEST(NormalNumbers, HaveTheMomentsAndTailsOfTheDistribution) {
  const size_t count = size_t{1} << 24;
  const auto n = static_cast<double>(count);
  const std::vector<float> values = normal(count);
  double power[5] = {}, neighbours = 0, squares_of_neighbours = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = values[i];
    double to_k = 1 / n;
    for (int k = 1; k <= 4; ++k) power[k] += to_k *= x;
    const double next = values[(i + 1) % count];
    neighbours += x * next / n;
    squares_of_neighbours += (x * x - 1) * (next * next - 1) / n;
  }
  // Within five deviations of what so many independent normal numbers have.
  const double root = 5 / std::sqrt(n);
  EXPECT_NEAR(power[1], 0, root);
  EXPECT_NEAR(power[2], 1, root * std::sqrt(2));
  EXPECT_NEAR(power[3], 0, root * std::sqrt(15));
  EXPECT_NEAR(power[4], 3, root * std::sqrt(96));
  EXPECT_NEAR(neighbours, 0, root);
  EXPECT_NEAR(squares_of_neighbours, 0, root * 2);
  for (const double bound : {0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0}) {
    for (const double sign : {-1.0, 1.0}) {
      const double expected = n * std::erfc(bound / std::sqrt(2)) / 2;
      const auto beyond = static_cast<double>(
          std::count_if(values.begin(), values.end(), [&](float x) { return sign * x > bound; }));
      EXPECT_NEAR(beyond, expected, 5 * std::sqrt(expected)) << sign * bound;
    }
  }
}

// Counts in bins that the distribution fills equally: chi-square of 1023 degrees of freedom.
TEST(NormalNumbers, FillBinsOfEqualSharesEvenly) {
  constexpr int kBins = 1024;
  const std::vector<float> values = normal(size_t{1} << 22);
  std::vector<double> counts(kBins);
  for (const float x : values) {
    const double share = std::erfc(-x / std::numbers::sqrt2) / 2;
    ++counts[static_cast<size_t>(share * kBins)];
  }
  const double expected = static_cast<double>(values.size()) / kBins;
  double chi = 0;
  for (const double count : counts) chi += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(chi, kBins - 1, 5 * std::sqrt(2 * (kBins - 1)));
}

TEST(NormalNumbers, AreTheSameBitsForAnyInstructionSetThreadsAndLength) {
  // FNV-1a of the bits: a seed's weights do not change from version to version.
  constexpr uint64_t kBits = 14137165500421986224ULL;
  const int threads = omp_get_max_threads();
  cpu::for_each_instruction_set([&] {
    for (const int used : {1, 3}) {
      omp_set_num_threads(used);
      const std::vector<float> values = normal(100001, 0.5F, 0.02F);
      uint64_t hash = 0xcbf29ce484222325ULL;
      for (const float x : values) hash = (hash ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3ULL;
      EXPECT_EQ(hash, kBits);
      for (const size_t length : {1, 2, 3, 17, 511, 512, 513, 40001}) {
        const std::vector<float> beginning = normal(length, 0.5F, 0.02F);
        EXPECT_TRUE(std::equal(beginning.begin(), beginning.end(), values.begin())) << length;
      }
    }
  });
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace coda
