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
  EXPECT_THAT(message({{"M", 7}, {"N", 9}, {"K", 4}}, "tpu"), HasSubstr("not 'tpu'"));
  EXPECT_THAT(message({{"M", 99999}, {"N", 9999}, {"K", 9999}}, "cpu"),
              HasSubstr("the reference in float64 would take about"));
}

TEST(CheckProgram, TriesZerosHugeAndTinyInputsInfinityAroundAndResultsInPlace) {
  const CheckReport report = check_program(projection(), {{"M", 70}, {"N", 90}, {"K", 40}},
                                           {.backend = "cpu", .configurations = 1});
  EXPECT_THAT(
      report.backends.front().traps,
      testing::ElementsAre("zero inputs", "huge inputs", "tiny inputs",
                           "NaN and infinity around tensors", "results in the place of inputs"));
  EXPECT_TRUE(check_program(projection(), {{"M", 7}, {"N", 9}, {"K", 4}},
                            {.backend = "cpu", .configurations = 1, .traps = false})
                  .backends.front()
                  .traps.empty());
}

// exp(x) / (1 + exp(x)) of a hundred is infinity by infinity in fp32.
TEST(CheckProgram, NotesWhereAProgramDoesNotHoldInFp32) {
  const CheckReport report = check_program(parse_program(R"(program p {
    e = exp(tile(x[M, N]))
    store(y, e / (1 + e))
  })"),
                                           {{"M", 7}, {"N", 9}}, {.backend = "cpu"});
  EXPECT_TRUE(report.is_right());
  ASSERT_EQ(report.backends.front().notes.size(), 1U);
  EXPECT_THAT(report.backends.front().notes.front(), HasSubstr("of huge inputs y overflows"));
  EXPECT_THAT(text(report), HasSubstr("cpu: note: of huge inputs y overflows"));
}

// 1 / -0 is -infinity, and the sign of a sum of zeros is a matter of its order.
TEST(CheckProgram, ZeroInputsHaveNoSign) {
  const CheckReport report =
      check_program(parse_program("program p {\n  store(r, 1 / combine_rows(sum(q[M, N])))\n}\n"),
                    {{"M", 7}, {"N", 9}}, {.backend = "cpu"});
  EXPECT_TRUE(report.is_right()) << text(report);
}

TEST(CheckBackward, ComparesWithFiniteDifferences) {
  const std::vector<Program> programs{parse_program(R"(program p {
    y = gemm(x[M, K]:bf16, w[V, K])
    z = max(y, 0) * per_row(r[M])
    row_partial(l, log_sum_exp(z))
    row_partial(m, max(z))
    store(z:bf16, as_stored(z, bf16))
    store(chosen, select_column(z, per_row(target[M]:i32)))
  })")};
  const BackwardReport report = check_backward(programs, {{"M", 5}, {"K", 3}, {"V", 70}});
  EXPECT_TRUE(report.is_right()) << text(report);
  std::vector<std::string> names;
  for (const CheckedGradient& gradient : report.gradients) names.push_back(gradient.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("grad_to_x", "grad_to_w", "grad_to_r"));
}

TEST(CheckBackward, SaysWhyNothingIsChecked) {
  const auto left_out = [](const std::string& statements, const DimValues& sizes) {
    const std::vector<Program> programs{parse_program("program p {\n" + statements + "\n}\n")};
    return check_backward(programs, sizes).left_out;
  };
  EXPECT_THAT(left_out("store(r, combine_rows(sum(p[M, N])) * 2)", {{"M", 5}, {"N", 3}}),
              HasSubstr("is made by another program"));
  EXPECT_THAT(left_out("row_partial(p, max(tile(x[M, N]:i32)))", {{"M", 5}, {"N", 3}}),
              HasSubstr("no stored value depends"));
  EXPECT_THAT(left_out("store(y, gemm(x[M, K], w[N, K]))", {{"M", 999}, {"N", 999}, {"K", 999}}),
              HasSubstr("take long"));
}

// A gated product, its backward by hand, and mistakes in that.
const char* const kForward = R"(program forward {
    gate = gemm(x[M, K], w[N, K])
    store(gate, gate)
    y = silu(gate) * tile(up[M, N])
    store(y, y)
    row_partial(s, sum(y * y))
  })";
const char* const kBackward = R"(program backward {
    g = tile(gate[M, N])
    u = tile(up[M, N])
    s = sigmoid(g)
    y = g * s * u
    d = tile(grad_of_y[M, N]) + 2 * y * per_row(ds[M])
    store(grad_to_up, d * g * s)
    store(dgate, d * u * s * (1 + g * (1 - s)))
  })";
const char* const kProducts = R"(program products {
    store(dx, gemm(dgate[M, N], w[N, K]))
  })";

BackwardReport written(std::string backward, const std::string& from = "",
                       const std::string& to = "") {
  if (!from.empty()) backward.replace(backward.find(from), from.size(), to);
  const std::vector<Program> forward{parse_program(kForward)};
  const std::vector<Program> programs{parse_program(backward), parse_program(kProducts)};
  return check_written_backward(forward, programs, {{"M", 5}, {"N", 70}, {"K", 3}});
}

TEST(CheckWrittenBackward, ARightOneIsAsFiniteDifferencesHaveIt) {
  const BackwardReport report = written(kBackward);
  EXPECT_TRUE(report.is_right()) << text(report);
  std::vector<std::string> names;
  for (const CheckedGradient& gradient : report.gradients) names.push_back(gradient.name);
  EXPECT_THAT(names, testing::ElementsAre("dgate", "dx", "grad_to_up"));
  EXPECT_LT(report.gradients[0].error, 1e-6);
  EXPECT_THAT(report.without_gradient, testing::ElementsAre("gate"));
  EXPECT_THAT(report.not_compared, testing::IsEmpty());
}

TEST(CheckWrittenBackward, MistakesAreFound) {
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"1 + g * (1 - s)", "1 - g * (1 - s)"},
      {"2 * y * per_row(ds[M])", "y * per_row(ds[M])"},
      {"store(grad_to_up, d * g * s)", "store(grad_to_up, d * s)"},
      {"store(grad_to_up, d * g * s)", "store(grad_to_up, -d * g * s)"},
      {"d * u * s", "d * s"}};
  for (const auto& [right, wrong] : mistakes)
    EXPECT_FALSE(written(kBackward, right, wrong).is_right()) << wrong;
}

TEST(CheckWrittenBackward, NamesThatSayNothingAreRefused) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    try {
      written(kBackward, from, to);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("grad_of_y[M, N]", "upstream[M, N]"), HasSubstr("reads 'upstream'"));
  EXPECT_THAT(refusal("ds[M]", "ds2[M]"), HasSubstr("reads 'ds2'"));
}

TEST(CheckBackward, AGradientAboveItsBoundIsWrong) {
  const BackwardReport report{.gradients = {{"grad_to_x", 2e-3, 1e-3}}};
  EXPECT_FALSE(report.is_right());
  EXPECT_THAT(text(report), HasSubstr("WRONG, finite differences are others: grad_to_x"));
}

}  // namespace
}  // namespace coda
