// SPDX-License-Identifier: Apache-2.0
// The example programs: each parses and prints without loss, and together they compute a SwiGLU MLP
// with its norm, forward and backward, judged by the plain formulas and by finite differences of
// the forward programs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "coda/program.h"
#include "program/evaluate.h"

namespace coda::program {
namespace {

constexpr int64_t kM = 5, kD = 70, kI = 66;
const DimValues kSizes = {{"M", kM}, {"D", kD}, {"I", kI}};

Program example(const std::string& name) {
  std::ifstream file(std::string(CODA_SOURCE_DIR) + "/examples/programs/" + name + ".coda");
  std::stringstream text;
  text << file.rdbuf();
  return parse_program(text.str());
}

void run(const std::string& name, TensorValues& values) {
  for (auto& [tensor, result] : evaluate(example(name), kSizes, values)) values[tensor] = result;
}

TensorValues random_values() {
  TensorValues values;
  std::mt19937_64 random(5);
  const auto fill = [&](const char* name, int64_t size, double scale) {
    for (int64_t i = 0; i < size; ++i) {
      values[name].push_back(scale * (static_cast<double>(random() >> 11) * 0x1p-52 - 1));
    }
  };
  fill("y0", kM * kD, 1), fill("wo", kD * kD, 0.2), fill("x0", kM * kD, 1), fill("w1", kD, 1);
  fill("wg", kI * kD, 0.3), fill("wu", kI * kD, 0.3), fill("wd", kD * kI, 0.3),
      fill("dx2", kM * kD, 1);
  values["inv_d"] = {1.0 / kD};
  return values;
}

void forward(TensorValues& values) {
  run("out_projection", values);
  run("norm_finalizer", values);
  run("gate_up_forward", values);
}

// What dx2 weighs: sum(dx2 ⊙ (a · Wdᵀ + x1)).
double objective(TensorValues values) {
  forward(values);
  double sum = 0;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t d = 0; d < kD; ++d) {
      double x2 = values["x1"][i * kD + d];
      for (int64_t k = 0; k < kI; ++k) x2 += values["a"][i * kI + k] * values["wd"][d * kI + k];
      sum += values["dx2"][i * kD + d] * x2;
    }
  }
  return sum;
}

TEST(ExamplePrograms, ParseAndPrintWithoutLoss) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(CODA_SOURCE_DIR) + "/examples/programs")) {
    if (entry.path().extension() != ".coda") continue;
    const Program program = example(entry.path().stem());
    EXPECT_EQ(parse_program(text(program)), program) << entry.path();
    EXPECT_EQ(program.name, entry.path().stem()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 6);
}

TEST(ExamplePrograms, TheForwardIsTheNormAndSwiGLU) {
  TensorValues values = random_values();
  forward(values);
  for (int64_t i = 0; i < kM; ++i) {
    std::vector<double> x1(kD), normed(kD);
    double squares = 0;
    for (int64_t d = 0; d < kD; ++d) {
      x1[d] = values["x0"][i * kD + d];
      for (int64_t k = 0; k < kD; ++k) x1[d] += values["y0"][i * kD + k] * values["wo"][d * kD + k];
      squares += x1[d] * x1[d];
      EXPECT_NEAR(values["x1"][i * kD + d], x1[d], 1e-12);
    }
    for (int64_t d = 0; d < kD; ++d)
      normed[d] = x1[d] / std::sqrt(squares / kD + 1e-5) * values["w1"][d];
    for (int64_t k = 0; k < kI; ++k) {
      double gate = 0, up = 0;
      for (int64_t d = 0; d < kD; ++d) {
        gate += normed[d] * values["wg"][k * kD + d];
        up += normed[d] * values["wu"][k * kD + d];
      }
      EXPECT_NEAR(values["a"][i * kI + k], gate / (1 + std::exp(-gate)) * up, 1e-11);
    }
  }
}

TEST(ExamplePrograms, OneConcatenatedWeightGivesTheSame) {
  TensorValues values = random_values();
  forward(values);
  const std::vector<double> expected = values["a"];
  values["w"] = values["wg"];
  values["w"].insert(values["w"].end(), values["wu"].begin(), values["wu"].end());
  run("gate_up_concatenated", values);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values["a"][i], expected[i], 1e-12);
}

TEST(ExamplePrograms, TheBackwardIsTheDerivativeOfTheForward) {
  TensorValues values = random_values();
  const TensorValues start = values;
  forward(values);
  run("gate_up_backward", values);
  std::vector<double> s(kM);  // the finalizer of s, by hand: two partials a row
  for (int64_t i = 0; i < kM; ++i) s[i] = values["s"][2 * i] + values["s"][2 * i + 1];
  values["s"] = s;
  run("norm_backward", values);
  const double step = 1e-5;
  const auto difference = [&](const char* name, int64_t index) {
    TensorValues up = start, down = start;
    up[name][index] += step;
    down[name][index] -= step;
    return (objective(up) - objective(down)) / (2 * step);
  };
  for (int64_t index : {0L, 69L, 71L, 139L, 349L}) {  // x0 enters x1 with weight 1
    EXPECT_NEAR(values["dx1"][index], difference("x0", index), 1e-6);
  }
  for (int64_t index : {0L, 33L, 69L})
    EXPECT_NEAR(values["dw1"][index], difference("w1", index), 1e-6);
}

}  // namespace
}  // namespace coda::program
