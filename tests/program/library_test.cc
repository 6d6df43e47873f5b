// SPDX-License-Identifier: Apache-2.0
// The library's programs: each parses and prints without loss and has a row in programs/README.md;
// those of a SwiGLU MLP with its norm compute together, forward and backward, what the plain
// formulas and finite differences of the forward programs say.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <regex>

#include "coda/program.h"
#include "program/evaluate.h"
#include "program/library_programs.h"

namespace coda::program {
namespace {

constexpr int64_t kM = 5, kD = 70, kI = 66;

// A program with its own sizes, over tensors by name.
void run(const std::string& name, int64_t n, int64_t k, TensorValues& values) {
  const DimValues sizes = {{"M", kM}, {"N", n}, {"K", k}};
  for (auto& [tensor, result] : evaluate(tests::library_program(name), sizes, values))
    values[tensor] = result;
}

TensorValues random_mlp() {
  TensorValues values;
  std::mt19937_64 random(5);
  const auto fill = [&](const char* name, int64_t size, double scale) {
    for (int64_t i = 0; i < size; ++i) {
      values[name].push_back(scale * (static_cast<double>(random() >> 11) * 0x1p-52 - 1));
    }
  };
  fill("y", kM * kD, 1), fill("wo", kD * kD, 0.2), fill("x0", kM * kD, 1), fill("norm", kD, 1);
  fill("w_gate", kI * kD, 0.3), fill("w_up", kI * kD, 0.3), fill("wd", kD * kI, 0.3),
      fill("dx", kM * kD, 1);
  values["inv_width"] = {1.0 / kD};
  return values;
}

void forward(TensorValues& values) {
  values["w"] = values["wo"];
  run("residual_norm", kD, kD, values);
  run("rms_statistic", kD, kD, values);
  run("swiglu", kI, kD, values);
}

// What dx weighs: sum(dx ⊙ (a · Wdᵀ + x)).
double objective(TensorValues values) {
  forward(values);
  double sum = 0;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t d = 0; d < kD; ++d) {
      double x2 = values["x"][i * kD + d];
      for (int64_t k = 0; k < kI; ++k) x2 += values["a"][i * kI + k] * values["wd"][d * kI + k];
      sum += values["dx"][i * kD + d] * x2;
    }
  }
  return sum;
}

class Library : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Programs, Library, testing::ValuesIn(tests::library_names()),
                         tests::name_of_library_test);

TEST_P(Library, ParsesAndPrintsWithoutLossInUnderFifteenLines) {
  const Program program = tests::library_program(GetParam());
  EXPECT_EQ(parse_program(text(program)), program);
  EXPECT_EQ(program.name, GetParam());
  std::istringstream lines(tests::library_text(GetParam()));
  int code = 0, comments = 0;
  for (std::string line; std::getline(lines, line);) ++(line.starts_with("#") ? comments : code);
  EXPECT_LT(code, 15);
  EXPECT_GE(comments, 1) << "what is it for, and what is its formula?";
}

TEST_P(Library, HasARowInTheReadme) {
  std::ifstream file(CODA_SOURCE_DIR "/programs/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(readme.find("[`" + GetParam() + "`](" + GetParam() + ".coda)"), std::string::npos);
}

TEST(LibraryOfPrograms, TheReadmeHasNoRowOfWhatIsNotThere) {
  std::ifstream file(CODA_SOURCE_DIR "/programs/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  const std::regex link(R"(\]\((\w+)\.coda\))");
  size_t rows = 0;
  for (std::sregex_iterator at(readme.begin(), readme.end(), link), end; at != end; ++at) {
    EXPECT_TRUE(std::filesystem::exists(tests::library_file((*at)[1]))) << (*at)[1];
    ++rows;
  }
  EXPECT_EQ(rows, tests::library_names().size());
}

TEST(LibraryMlp, TheForwardIsTheNormAndSwiGLU) {
  TensorValues values = random_mlp();
  forward(values);
  for (int64_t i = 0; i < kM; ++i) {
    std::vector<double> x1(kD), normed(kD);
    double squares = 0;
    for (int64_t d = 0; d < kD; ++d) {
      x1[d] = values["x0"][i * kD + d];
      for (int64_t k = 0; k < kD; ++k) x1[d] += values["y"][i * kD + k] * values["wo"][d * kD + k];
      squares += x1[d] * x1[d];
      EXPECT_NEAR(values["x"][i * kD + d], x1[d], 1e-12);
    }
    for (int64_t d = 0; d < kD; ++d)
      normed[d] = x1[d] / std::sqrt(squares / kD + 1e-5) * values["norm"][d];
    for (int64_t k = 0; k < kI; ++k) {
      double gate = 0, up = 0;
      for (int64_t d = 0; d < kD; ++d) {
        gate += normed[d] * values["w_gate"][k * kD + d];
        up += normed[d] * values["w_up"][k * kD + d];
      }
      EXPECT_NEAR(values["a"][i * kI + k], gate / (1 + std::exp(-gate)) * up, 1e-11);
    }
  }
}

TEST(LibraryMlp, OneJoinedWeightGivesTheSame) {
  TensorValues values = random_mlp();
  forward(values);
  const std::vector<double> expected = values["a"];
  values["w"] = values["w_gate"];
  values["w"].insert(values["w"].end(), values["w_up"].begin(), values["w_up"].end());
  run("swiglu_joined", kI, kD, values);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values["a"][i], expected[i], 1e-12);
}

TEST(LibraryMlp, TheBackwardIsTheDerivativeOfTheForward) {
  TensorValues values = random_mlp();
  const TensorValues start = values;
  forward(values);
  values["w"] = values["wd"];
  run("swiglu_backward", kI, kD, values);
  run("norm_row_factor", kI, kD, values);
  values["wg"] = values["w_gate"], values["wu"] = values["w_up"];
  run("norm_backward_joined", kD, kI, values);
  run("norm_weight_gradient", kD, kI, values);
  const double step = 1e-5;
  const auto difference = [&](const char* name, int64_t index) {
    TensorValues up = start, down = start;
    up[name][index] += step;
    down[name][index] -= step;
    return (objective(up) - objective(down)) / (2 * step);
  };
  for (int64_t index : {0L, 69L, 71L, 139L, 349L}) {  // x0 enters x with weight 1
    EXPECT_NEAR(values["dx"][index], difference("x0", index), 1e-6);
  }
  for (int64_t index : {0L, 33L, 69L})
    EXPECT_NEAR(values["norm_gradient"][index], difference("norm", index), 1e-6);
  // The weight gradient of gate: rows are its contraction, so M is its rows.
  values["dz"] = values["d_gate"];
  for (auto& [tensor, result] : evaluate(tests::library_program("weight_gradient_norm"),
                                         {{"M", kI}, {"N", kD}, {"K", kM}}, values))
    values[tensor] = result;
  for (int64_t index : {0L, 133L, 4619L})
    EXPECT_NEAR(values["dw"][index], difference("w_gate", index), 1e-6);
}

}  // namespace
}  // namespace coda::program
