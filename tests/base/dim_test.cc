// SPDX-License-Identifier: Apache-2.0
// Dims: what text they have and take, that arithmetic is exact, and what is refused.
#include "coda/dim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "coda/error.h"

namespace coda {
namespace {

std::string error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Dim, TextIsALinearFormInSymbolOrder) {
  EXPECT_EQ(Dim().text(), "0");
  EXPECT_EQ(Dim(576).text(), "576");
  EXPECT_EQ(Dim("M").text(), "M");
  EXPECT_EQ((2 * Dim("I") + 4).text(), "2*I + 4");
  EXPECT_EQ((Dim("M") - 2 * Dim("I") - 3).text(), "-2*I + M - 3");
  EXPECT_EQ((int64_t{-1} * Dim("a")).text(), "-a");
  EXPECT_EQ(Dim(-4).text(), "-4");
  EXPECT_EQ(Dim(std::numeric_limits<int64_t>::min()).text(), "-9223372036854775808");
}

TEST(Dim, ParseAcceptsAnyOrderAndSpacing) {
  EXPECT_EQ(Dim::parse(" 4+2 * I "), 2 * Dim("I") + 4);
  EXPECT_EQ(Dim::parse("M - M + 1"), Dim(1));
  EXPECT_EQ(Dim::parse("-M+2*M"), Dim("M"));
  EXPECT_EQ(Dim::parse("0*M + 7"), Dim(7));
}

TEST(Dim, ParseRefusesWhatIsNotALinearForm) {
  for (const char* text : {"", " ", "+", "M*2", "2*", "2**I", "M N", "M +", "2.5", "M/2",
                           "99999999999999999999", "é"}) {
    EXPECT_THROW(Dim::parse(text), Error) << text;
  }
  EXPECT_THROW(Dim("2*I"), Error);
  EXPECT_THROW(Dim(""), Error);
}

TEST(Dim, ParseOfTextIsTheIdentity) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    Dim dim(static_cast<int64_t>(random() % 2001) - 1000);
    for (const char* symbol : {"M", "D_2", "I", "a9"}) {
      if (random() % 2) dim = dim + (static_cast<int64_t>(random() % 9) - 4) * Dim(symbol);
    }
    EXPECT_EQ(Dim::parse(dim.text()), dim) << dim.text();
  }
}

TEST(Dim, ArithmeticDropsZeroTerms) {
  EXPECT_TRUE((Dim("M") - Dim("M")).is(0));
  EXPECT_TRUE((0 * Dim("M")).is_constant());
  EXPECT_EQ((Dim("M") + Dim("M")).half(), Dim("M"));
  EXPECT_EQ((2 * Dim("M") + 1).half(), std::nullopt);
  EXPECT_EQ(Dim("M").half(), std::nullopt);
  EXPECT_EQ(Dim(6).half(), Dim(3));
}

TEST(Dim, ArithmeticThatOverflowsIsAnError) {
  const Dim big(std::numeric_limits<int64_t>::max());
  EXPECT_THROW(big + 1, Error);
  EXPECT_THROW(2 * big, Error);
  EXPECT_THROW((int64_t{4} * Dim("M")).evaluate({{"M", int64_t{1} << 62}}), Error);
}

TEST(Dim, EvaluateBindsSymbolsAndNamesWhatIsWrong) {
  const Dim dim = 2 * Dim("I") + 4;
  EXPECT_EQ(dim.evaluate({{"I", 10}, {"unused", 1}}), 24);
  EXPECT_THAT(error_of([&] { dim.evaluate({}); }), testing::HasSubstr("'I' has no value"));
  EXPECT_THAT(error_of([&] { (Dim("I") - 4).evaluate({{"I", 4}}); }),
              testing::HasSubstr("size I - 4 is 0 with I = 4; sizes must be positive"));
}

}  // namespace
}  // namespace coda
