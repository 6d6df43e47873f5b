// SPDX-License-Identifier: Apache-2.0
// What a check of a program reports: each stored tensor with its error and bound, that bits are the
// same, what is refused, and which of it is wrong.
#include "coda/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/error.h"

namespace coda {
namespace {

using testing::HasSubstr;
using testing::Not;

Program projection() {
  return parse_program(R"(program projection {
    acc = gemm(x[M, K]:bf16, w[N, K]:bf16)
    y = tile(x0[M, N]:bf16) + acc
    store(y:bf16, y)
    row_partial(squares, sum(y * y))
  })");
}

TEST(CheckProgram, ReportsEachStoredTensorAndTheBitsOfAllConfigurations) {
  const CheckReport report = check_program(projection(), {{"M", 70}, {"N", 90}, {"K", 40}},
                                           {.backend = "cpu", .configurations = 3});
  EXPECT_TRUE(report.is_right());
  EXPECT_FALSE(report.has_positive_inputs);
  ASSERT_EQ(report.backends.size(), 1U);
  const CheckedBackend& cpu = report.backends.front();
  EXPECT_EQ(cpu.name, "cpu");
  EXPECT_EQ(cpu.configurations, 3U);
  ASSERT_EQ(cpu.tensors.size(), 2U);
  EXPECT_EQ(cpu.tensors[0].decl.name, "y");
  for (const CheckedTensor& tensor : cpu.tensors) {
    EXPECT_GT(tensor.error, 0);
    EXPECT_LE(tensor.error, tensor.bound);
    EXPECT_LT(tensor.bound, 0.01);
  }
  EXPECT_THAT(text(report), HasSubstr("the same bits in two runs and 3 configurations\n"));
}

// What one of these says is wrong, however right the rest is.
TEST(CheckReports, AreWrongWithAnErrorAboveItsBoundOtherBitsOrMemoryWrittenOutside) {
  const CheckedTensor right{projection().tensors.front(), 1e-3, 2e-3};
  CheckedTensor wrong = right;
  wrong.error = std::numeric_limits<double>::quiet_NaN();
  const CheckedBackend backend{.name = "cpu", .tensors = {right}, .configurations = 1};
  const auto with = [&](auto change) {
    CheckReport report{.backends = {backend}};
    change(report.backends.front());
    return report;
  };
  const CheckReport all_right = with([](CheckedBackend&) {});
  EXPECT_TRUE(all_right.is_right());
  EXPECT_THAT(text(all_right), Not(HasSubstr("WRONG")));
  for (const CheckReport& report :
       {with([&](CheckedBackend& b) { b.tensors.push_back(wrong); }),
        with([](CheckedBackend& b) { b.different.emplace_back("one thread"); }),
        with([](CheckedBackend& b) { b.overrun.emplace_back("y"); })}) {
    EXPECT_FALSE(report.is_right());
    EXPECT_THAT(text(report), HasSubstr("WRONG"));
  }
  const CheckReport refused = with([](CheckedBackend& b) { b.refused = "fp32"; });
  EXPECT_TRUE(refused.is_right());
  EXPECT_EQ(text(refused), "  cpu: refused: fp32\n");
}

TEST(CheckProgram, RefusesAnUnknownBackendAndSizesThatAreTooLargeForTheReference) {
  const auto message = [](const DimValues& sizes, const std::string& backend) -> std::string {
    try {
      check_program(projection(), sizes, {.backend = backend});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({{"M", 7}, {"N", 9}, {"K", 4}}, "tpu"), HasSubstr("not on 'tpu'"));
  EXPECT_THAT(message({{"M", 99999}, {"N", 9999}, {"K", 9999}}, "cpu"),
              HasSubstr("the reference in float64 would take about"));
}

}  // namespace
}  // namespace coda
