// SPDX-License-Identifier: Apache-2.0
// The judge of what backends compute: runs in fp32 that round where the program says pass, whatever
// ties their sums' order makes them fall across; wrong roundings, signs and places do not.
#include "program/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "coda/float16.h"
#include "program/random_program.h"

namespace coda::program {
namespace {

constexpr int64_t kRows = 96, kColumns = 16, kDepth = 1024;

// As of a bias's gradient: what is added up along columns is what is stored.
const char* const kProgram = R"(program partials {
  acc = gemm(a[M, K]:bf16, b[N, K]:bf16, nt)
  y = as_stored(acc + tile(x[M, N]:bf16), bf16)
  store(y:bf16, y)
  column_partial(sums, sum(y))
})";

// How the program is run: in fp32, along K from any place on. As tensor cores do, a sum is rounded
// towards 0.
struct Fp32Run {
  int64_t first = 0;
  std::function<float(float)> round = [](float x) { return float_from_bf16(bf16_from_float(x)); };
  float sign = 1;       // of the tile that is added
  int64_t summed = 64;  // of the rows of a partial
};

float cut_off(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000U); }

float towards_zero(double x) {
  const auto nearest = static_cast<float>(x);
  return std::abs(static_cast<double>(nearest)) > std::abs(x) ? std::nextafter(nearest, 0.0F)
                                                              : nearest;
}

// Dekker's way to leave 7 of a float's 24 bits: one less than bf16 has.
float to_seven_bits(float x) {
  const float far = x * (0x1p17F + 1);
  return far - (far - x);
}

TensorValues run(const Fp32Run& how, const TensorValues& inputs) {
  const auto& a = inputs.at("a");
  const auto& b = inputs.at("b");
  TensorValues results;
  std::vector<double>& y = results["y"];
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) {
        const int64_t at = (how.first + k) % kDepth;
        sum = towards_zero(sum + a[i * kDepth + at] * b[j * kDepth + at]);
      }
      y.push_back(how.round(sum + how.sign * static_cast<float>(inputs.at("x")[i * kColumns + j])));
    }
  }
  std::vector<double>& sums = results["sums"];
  for (int64_t span = 0; span < kRows; span += 64) {
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int64_t i = span; i < std::min(kRows, span + how.summed); ++i)
        sum += static_cast<float>(y[i * kColumns + j]);
      sums.push_back(sum);
    }
  }
  return results;
}

class JudgeOfPartials : public ::testing::Test {
 protected:
  const Program program_ = parse_program(kProgram);
  const DimValues sizes_{{"M", kRows}, {"N", kColumns}, {"K", kDepth}};

  TensorValues inputs(uint64_t seed) const { return tests::random_inputs(program_, sizes_, seed); }
};

TEST_F(JudgeOfPartials, ValuesThatFallToTheOtherSideOfATieAreRight) {
  int flips = 0, beyond_the_references_rounding = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const TensorValues given = inputs(seed);
    const TensorValues rounded = evaluate(program_, sizes_, given, {.round_stored = true});
    Judge judge(program_, sizes_, given);
    const double of_rounding = judge.of("sums", rounded.at("sums")).error;
    for (const int64_t first : {0, 300, 640}) {
      const TensorValues results = run({.first = first}, given);
      for (size_t i = 0; i < results.at("y").size(); ++i)
        flips += results.at("y")[i] != rounded.at("y")[i];
      for (const auto& [name, values] : results) {
        const auto [error, bound] = judge.of(name, values);
        EXPECT_LE(error, bound) << name << ", seed " << seed << ", from " << first;
        EXPECT_LE(bound, 0.005) << name << ": twice what the roundings make, at most";
        if (name == "sums") beyond_the_references_rounding += error > of_rounding + 1e-5;
      }
    }
  }
  EXPECT_GT(flips, 10) << "the runs are too exact to show anything";
  EXPECT_GT(beyond_the_references_rounding, 0);
}

TEST_F(JudgeOfPartials, WrongRoundingsSignsAndPlacesAreNot) {
  const std::pair<const char*, Fp32Run> wrong[] = {
      {"cut off instead of rounded", {.round = cut_off}},
      {"to a bit less", {.round = to_seven_bits}},
      {"a sign", {.sign = -1}},
      {"a row left out", {.summed = 63}},
  };
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Judge judge(program_, sizes_, inputs(seed));
    for (const auto& [what, how] : wrong) {
      const auto [error, bound] = judge.of("sums", run(how, inputs(seed)).at("sums"));
      EXPECT_GT(error, bound) << what << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace coda::program
