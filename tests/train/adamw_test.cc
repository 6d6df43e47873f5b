// SPDX-License-Identifier: Apache-2.0
// AdamW against PyTorch's formulas in float64, over several steps and ragged sizes; the bf16 copy
// to the bit; the same bits for any number of threads.
#include "coda/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <random>
#include <vector>

#include "coda/float16.h"
#include "io/error_message.h"

namespace coda {
namespace {

using testing::HasSubstr;

struct Parameter {
  explicit Parameter(size_t count, std::mt19937_64& random, bool decays) : decay(decays) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) weights.push_back(normal(random));
    m.resize(count);
    v.resize(count);
    gradients.resize(count);
    bf16.resize(count);
  }
  AdamWTensor tensor() { return {weights, m, v, gradients, bf16, decay}; }

  std::vector<float> weights, m, v, gradients;
  std::vector<uint16_t> bf16;
  bool decay;
};

std::vector<Parameter> make_parameters(std::mt19937_64& random) {
  std::vector<Parameter> parameters;
  for (const size_t count : {1u, 3u, 2047u, 2048u, 2049u, 10000u, 0u}) {
    parameters.emplace_back(count, random, parameters.size() % 2 == 0);
  }
  return parameters;
}

void draw_gradients(std::vector<Parameter>& parameters, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.1f, 1.0f);
  for (Parameter& parameter : parameters) {
    for (float& gradient : parameter.gradients) gradient = normal(random);
    // Sizes of gradients differ by orders of magnitude within a tensor, and some are 0.
    for (size_t i = 0; i < parameter.gradients.size(); i += 5) parameter.gradients[i] *= 1e-6f;
    for (size_t i = 0; i < parameter.gradients.size(); i += 7) parameter.gradients[i] = 0;
  }
}

void step_all(std::vector<Parameter>& parameters, const AdamWOptions& options, double rate,
              int64_t step, double scale) {
  std::vector<AdamWTensor> tensors;
  for (Parameter& parameter : parameters) tensors.push_back(parameter.tensor());
  adamw_step(tensors, options, rate, step, scale);
}

// Moments in bf16 are those of fp32, rounded; the step uses them unrounded.
TEST(AdamW, RoundsMomentsBehindTheStep) {
  std::mt19937_64 random(5);
  std::vector<Parameter> rounded = make_parameters(random);
  for (int64_t step = 1; step <= 4; ++step) {
    draw_gradients(rounded, random);
    std::vector<Parameter> exact = rounded;
    step_all(exact, {}, 0.01, step, 0.5);
    step_all(rounded, {.moments = DType::bf16}, 0.01, step, 0.5);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_EQ(rounded[i].weights, exact[i].weights);
      for (size_t j = 0; j < exact[i].m.size(); ++j) {
        EXPECT_EQ(rounded[i].m[j], float_from_bf16(bf16_from_float(exact[i].m[j])));
        EXPECT_EQ(rounded[i].v[j], float_from_bf16(bf16_from_float(exact[i].v[j])));
      }
    }
  }
}

TEST(AdamW, FollowsPyTorchsFormulas) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<Parameter> parameters = make_parameters(random);
  struct Exact {
    std::vector<double> weights, m, v;
  };
  std::vector<Exact> exact;
  for (const Parameter& parameter : parameters) {
    exact.push_back({{parameter.weights.begin(), parameter.weights.end()},
                     std::vector<double>(parameter.weights.size()),
                     std::vector<double>(parameter.weights.size())});
  }
  AdamWOptions options;
  options.beta2 = 0.99;
  constexpr int kSteps = 8;
  double moved = 0;
  for (int step = 1; step <= kSteps; ++step) {
    draw_gradients(parameters, random);
    const double rate = 1e-2 * step;
    const double scale = step == 3 ? 0.25 : 1.0;
    step_all(parameters, options, rate, step, scale);
    moved += rate;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      for (size_t i = 0; i < parameter.weights.size(); ++i) {
        auto& [weights, m, v] = exact[p];
        const double g = scale * static_cast<double>(parameter.gradients[i]);
        if (parameter.decay) weights[i] *= 1 - rate * options.weight_decay;
        m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
        v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(options.beta1, step));
        const double v_hat = v[i] / (1 - std::pow(options.beta2, step));
        weights[i] -= rate * m_hat / (std::sqrt(v_hat) + options.eps);
        // A step has about ten roundings of 2^-24 of the values; they add up over the steps. m may
        // cancel: its scale is the gradients' own, sqrt(v_hat).
        const double ulps = 10.0 * step * 0x1p-24;
        const double gradient_size = std::sqrt(v_hat) + 1e-30;
        ASSERT_NEAR(parameter.m[i], m[i], ulps * gradient_size) << "step " << step;
        ASSERT_NEAR(parameter.v[i], v[i], ulps * v[i]) << "step " << step;
        ASSERT_NEAR(parameter.weights[i], weights[i], ulps * (std::abs(weights[i]) + moved))
            << "step " << step << ", parameter " << p << ", element " << i;
        ASSERT_EQ(parameter.bf16[i], bf16_from_float(parameter.weights[i]));
      }
    }
  }
}

TEST(AdamW, DecayIsDecoupledAndOnlyWhereAsked) {
  std::vector<float> weights = {2, 2};
  std::vector<float> m(2), v(2);
  const std::vector<float> gradients = {0, 0};
  AdamWOptions options;
  options.weight_decay = 0.5;
  for (const bool decay : {true, false}) {
    const AdamWTensor tensor{weights, m, v, gradients, {}, decay};
    adamw_step(std::vector{tensor}, options, 0.5, 1);
    EXPECT_EQ(weights[0], 1.5f);  // 2 * (1 - 0.25), and then no more
  }
}

TEST(AdamW, TheFirstStepMovesByTheRateWhateverTheGradientsSize) {
  std::vector<float> weights = {0, 0, 0};
  std::vector<float> m(3), v(3);
  const std::vector<float> gradients = {1e-3f, -1, 1000};
  adamw_step(std::vector<AdamWTensor>{{weights, m, v, gradients, {}, false}}, {}, 0.1, 1);
  EXPECT_NEAR(weights[0], -0.1, 1e-5);
  EXPECT_NEAR(weights[1], 0.1, 1e-5);
  EXPECT_NEAR(weights[2], -0.1, 1e-5);
}

TEST(AdamW, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = omp_get_max_threads();
  std::vector<std::vector<Parameter>> runs;
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    std::mt19937_64 random(3);
    std::vector<Parameter> parameters = make_parameters(random);
    for (int step = 1; step <= 3; ++step) {
      draw_gradients(parameters, random);
      step_all(parameters, {}, 0.01, step, 0.5);
    }
    runs.push_back(std::move(parameters));
  }
  omp_set_num_threads(threads);
  for (size_t run = 1; run < runs.size(); ++run) {
    for (size_t p = 0; p < runs[0].size(); ++p) {
      EXPECT_EQ(runs[run][p].weights, runs[0][p].weights);
      EXPECT_EQ(runs[run][p].m, runs[0][p].m);
      EXPECT_EQ(runs[run][p].v, runs[0][p].v);
      EXPECT_EQ(runs[run][p].bf16, runs[0][p].bf16);
    }
  }
}

TEST(AdamW, RefusesOptionsWithoutMeaning) {
  const auto message = [](const AdamWOptions& options, double rate) {
    return error_message([&] { adamw_step({}, options, rate, 1); });
  };
  EXPECT_EQ(message({}, 0.1), "");
  EXPECT_THAT(message({.beta1 = 1}, 0.1), HasSubstr("beta1 and beta2"));
  EXPECT_THAT(message({.beta2 = -0.1}, 0.1), HasSubstr("beta1 and beta2"));
  EXPECT_THAT(message({.eps = -1}, 0.1), HasSubstr("eps"));
  EXPECT_THAT(message({.weight_decay = -1}, 0.1), HasSubstr("weight decay"));
  EXPECT_THAT(message({.moments = DType::f16}, 0.1), HasSubstr("f32 or bf16, not f16"));
  EXPECT_EQ(message({.beta2 = 0.999}, 0.1), "");
  EXPECT_THAT(message({.beta2 = 0.999, .moments = DType::bf16}, 0.1), HasSubstr("never fade"));
  EXPECT_THAT(message({}, -0.1), HasSubstr("learning rate"));
  EXPECT_THAT(message({}, std::nan("")), HasSubstr("learning rate"));
}

}  // namespace
}  // namespace coda
