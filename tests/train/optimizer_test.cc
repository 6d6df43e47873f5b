// SPDX-License-Identifier: Apache-2.0
// Compares each optimizer with the formulas of its paper in float64, over several steps and ragged
// sizes, and AdamW bit by bit with a plain loop. Also tests bf16 copies, bf16 states, and that the
// bits do not depend on the number of threads.
#include "coda/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/stochastic_bf16.h"
#include "coda/float16.h"
#include "coda/program_error.h"
#include "cpu/cpu_backend.h"
#include "io/error_message.h"
#include "runtime/reference_backend.h"
#include "train/update_programs.h"

namespace coda {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct Parameter {
  Parameter(size_t count, size_t its_states, std::mt19937_64& random, bool decays)
      : states(its_states, std::vector<float>(count)),
        gradients(count),
        bf16(count),
        decays(decays) {
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) weights.push_back(normal(random));
  }
  UpdatedTensor tensor() {
    return {weights, {states.begin(), states.end()}, gradients, bf16, decays};
  }

  std::vector<float> weights;
  std::vector<std::vector<float>> states;
  std::vector<float> gradients;
  std::vector<uint16_t> bf16;
  bool decays;
};

std::vector<Parameter> make_parameters(const Optimizer& optimizer, std::mt19937_64& random) {
  std::vector<Parameter> parameters;
  for (const size_t count : {1U, 3U, 2047U, 2048U, 2049U, 10000U, 0U})
    parameters.emplace_back(count, optimizer.states.size(), random, parameters.size() % 2 == 0);
  return parameters;
}

void draw_gradients(std::vector<Parameter>& parameters, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.1F, 1.0F);
  for (Parameter& parameter : parameters) {
    for (float& gradient : parameter.gradients) gradient = normal(random);
    // Within a tensor the magnitudes of gradients differ widely, and some gradients are 0.
    for (size_t i = 0; i < parameter.gradients.size(); i += 5) parameter.gradients[i] *= 1e-6F;
    for (size_t i = 0; i < parameter.gradients.size(); i += 7) parameter.gradients[i] = 0;
  }
}

void step_all(TensorUpdate& update, std::vector<Parameter>& parameters, double rate, int64_t step,
              double scale) {
  std::vector<UpdatedTensor> tensors;
  for (Parameter& parameter : parameters) tensors.push_back(parameter.tensor());
  update.run(tensors, rate, step, scale);
}

// One element in float64: its weight and its states.
struct Exact {
  double w = 0;
  double state[2] = {};
};
using ExactStep = void (*)(Exact& x, double g, double rate, int64_t step, double decayed,
                           const std::map<std::string, double>& s);

void exact_adamw(Exact& x, double g, double rate, int64_t step, double decayed,
                 const std::map<std::string, double>& s) {
  auto& [m, v] = x.state;
  m = s.at("beta1") * m + (1 - s.at("beta1")) * g;
  v = s.at("beta2") * v + (1 - s.at("beta2")) * g * g;
  const auto n = static_cast<double>(step);
  const double m_hat = m / (1 - std::pow(s.at("beta1"), n));
  const double v_hat = v / (1 - std::pow(s.at("beta2"), n));
  x.w = decayed - rate * m_hat / (std::sqrt(v_hat) + s.at("adam-eps"));
}

void exact_sgd(Exact& x, double g, double rate, int64_t /*step*/, double decayed,
               const std::map<std::string, double>& s) {
  x.state[0] = s.at("momentum") * x.state[0] + g;
  x.w = decayed - rate * x.state[0];
}

void exact_lion(Exact& x, double g, double rate, int64_t /*step*/, double decayed,
                const std::map<std::string, double>& s) {
  const double mean = s.at("beta1") * x.state[0] + (1 - s.at("beta1")) * g;
  x.w = decayed - rate * (mean > 0 ? 1 : mean < 0 ? -1 : 0);
  x.state[0] = s.at("beta2") * x.state[0] + (1 - s.at("beta2")) * g;
}

struct Case {
  const char* optimizer;
  std::map<std::string, double> settings;
  ExactStep exact;
  size_t states;
};
const Case kCases[] = {
    {"adamw", {{"beta2", 0.99}}, exact_adamw, 2},
    {"sgd", {{"decay", 0.1}}, exact_sgd, 1},
    {"sgd", {{"momentum", 0}}, exact_sgd, 0},
    {"lion", {}, exact_lion, 1},
};

TEST(Optimizer, FollowsItsFormulas) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  ReferenceBackend reference;
  for (const Case& its : kCases) {
    for (Backend* backend : {cpu.get(), static_cast<Backend*>(&reference)}) {
      const Optimizer optimizer = make_optimizer(its.optimizer, its.settings);
      SCOPED_TRACE(text(optimizer) + " on " + std::string(backend->name()));
      ASSERT_EQ(optimizer.states.size(), its.states);
      std::mt19937_64 random(11);
      std::vector<Parameter> parameters = make_parameters(optimizer, random);
      std::vector<std::vector<Exact>> exact;
      for (const Parameter& parameter : parameters) {
        exact.emplace_back();
        for (const float w : parameter.weights) exact.back().push_back({.w = w});
      }
      TensorUpdate update(optimizer, *backend);
      double moved = 0;
      for (int step = 1; step <= 8; ++step) {
        draw_gradients(parameters, random);
        const double rate = 1e-2 * step;
        const double scale = step == 3 ? 0.25 : 1.0;
        step_all(update, parameters, rate, step, scale);
        moved += 10 * rate;  // momentum 0.9 sums the gradients of about ten steps
        // A step rounds about ten times, by 2^-24 of the value. Errors add up over the steps.
        const double ulps = 10.0 * step * 0x1p-24;
        for (size_t p = 0; p < parameters.size(); ++p) {
          const Parameter& parameter = parameters[p];
          for (size_t i = 0; i < parameter.weights.size(); ++i) {
            Exact& x = exact[p][i];
            const double decayed = x.w * (parameter.decays ? 1 - rate * optimizer.decay : 1);
            its.exact(x, scale * static_cast<double>(parameter.gradients[i]), rate, step, decayed,
                      optimizer.settings);
            for (size_t k = 0; k < its.states; ++k)
              ASSERT_NEAR(parameter.states[k][i], x.state[k], ulps * 20) << "step " << step;
            ASSERT_NEAR(parameter.weights[i], x.w, ulps * (std::abs(x.w) + moved))
                << "step " << step << ", parameter " << p << ", element " << i;
            ASSERT_EQ(parameter.bf16[i], bf16_from_float(parameter.weights[i]));
          }
        }
      }
    }
  }
}

// A run that another version of the library began must continue with the same bits.
TEST(Optimizer, AdamWHasTheBitsOfAPlainLoop) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  // The defaults, and settings of which every digit counts.
  for (const std::map<std::string, double>& settings : {std::map<std::string, double>{},
                                                        {{"beta1", 0.87654321},
                                                         {"beta2", 0.98765432},
                                                         {"adam-eps", 1.2345678e-3},
                                                         {"decay", 0.3}}}) {
    const Optimizer optimizer = make_optimizer("adamw", settings);
    const double beta1 = optimizer.settings.at("beta1");
    const double beta2 = optimizer.settings.at("beta2");
    const auto eps = static_cast<float>(optimizer.settings.at("adam-eps"));
    TensorUpdate update(optimizer, *cpu);
    std::mt19937_64 random(7);
    std::vector<Parameter> parameters = make_parameters(optimizer, random);
    for (int64_t step = 1; step <= 4; ++step) {
      draw_gradients(parameters, random);
      std::vector<Parameter> looped = parameters;
      const double rate = 0.01;
      step_all(update, parameters, rate, step, 0.3);
      const auto n = static_cast<double>(step);
      const auto root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, n)));
      const auto step_size = static_cast<float>(rate / (1 - std::pow(beta1, n)));
      for (size_t p = 0; p < looped.size(); ++p) {
        Parameter& its = looped[p];
        const float keep = its.decays ? static_cast<float>(1 - rate * optimizer.decay) : 1.0F;
        for (size_t i = 0; i < its.weights.size(); ++i) {
          const float g = its.gradients[i] * static_cast<float>(0.3);
          const float m0 = its.states[0][i];
          const float m = m0 + static_cast<float>(1 - beta1) * (g - m0);
          const float v = static_cast<float>(beta2) * its.states[1][i] +
                          static_cast<float>(1 - beta2) * (g * g);
          const float size = std::sqrt(v) * root_scale + eps;
          const float w = keep * its.weights[i] - step_size * (m / size);
          ASSERT_EQ(parameters[p].states[0][i], m);
          ASSERT_EQ(parameters[p].states[1][i], v);
          ASSERT_EQ(parameters[p].weights[i], w);
        }
      }
    }
  }
}

// A state in bf16 is one of the two bf16 numbers around the fp32 state. The step itself uses the
// unrounded state. How it is rounded: rounding_noise_test.cc.
TEST(Optimizer, RoundsStatesBehindTheStep) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  for (const char* name : {"adamw", "sgd", "lion"}) {
    TensorUpdate in_fp32(make_optimizer(name), *cpu);
    TensorUpdate in_bf16(make_optimizer(name, {}, DType::bf16), *cpu);
    std::mt19937_64 random(5);
    std::vector<Parameter> rounded = make_parameters(make_optimizer(name), random);
    for (int64_t step = 1; step <= 4; ++step) {
      draw_gradients(rounded, random);
      std::vector<Parameter> exact = rounded;
      step_all(in_fp32, exact, 0.01, step, 0.5);
      step_all(in_bf16, rounded, 0.01, step, 0.5);
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_EQ(rounded[i].weights, exact[i].weights);
        for (size_t k = 0; k < exact[i].states.size(); ++k)
          for (size_t j = 0; j < exact[i].states[k].size(); ++j)
            ASSERT_THAT(rounded[i].states[k][j], AnyOf(stochastic_bf16(exact[i].states[k][j], 0),
                                                       stochastic_bf16(exact[i].states[k][j], 1)));
      }
    }
  }
}

TEST(Optimizer, DecayIsDecoupledAndOnlyWhereAsked) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  for (const char* name : {"adamw", "sgd", "lion"}) {
    const Optimizer optimizer = make_optimizer(name, {{"decay", 0.5}});
    TensorUpdate update(optimizer, *cpu);
    std::vector<float> weights = {2, 2};
    std::vector<std::vector<float>> states(optimizer.states.size(), std::vector<float>(2));
    const std::vector<float> gradients = {0, 0};
    for (const bool decays : {true, false}) {
      const UpdatedTensor tensor{weights, {states.begin(), states.end()}, gradients, {}, decays};
      update.run(std::vector{tensor}, 0.5, 1);
      EXPECT_EQ(weights[0], 1.5F) << name;  // 2 * (1 - 0.25), then unchanged
    }
  }
}

// Tensors of one size differ in whether they decay and have a copy: each is updated as alone.
// A weight with a copy in 8 bits is updated by a program of its own, which makes the copy too.
TEST(Optimizer, AWeightWithACopyOfItsOwnDecaysOnlyWhereAsked) {
  const ParameterCopy copy{"w", parse_program("program copy_of_w {\n  w = tile(w[8, 16]:bf16)\n"
                                              "  store(w_e4m3:e4m3, w * scalar(w_scale))\n}")};
  for (const bool decays : {true, false}) {
    const WeightTensor weight{"w", {8, 16}, 8, 16, decays, {}, {}};
    const Program update = update_with(copy, weight, make_optimizer("adamw"));
    EXPECT_EQ(std::ranges::count(update.tensors, "decay", &TensorDecl::name), decays ? 1 : 0);
    EXPECT_EQ(std::ranges::count(update.tensors, "w_e4m3", &TensorDecl::name), 1);
  }
}

TEST(Optimizer, TensorsOfOneSizeAreUpdatedAsAlone) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  const Optimizer optimizer = make_optimizer("adamw", {{"decay", 0.5}});
  for (const unsigned first : {0U, 1U, 2U, 3U}) {
    TensorUpdate together(optimizer, *cpu);
    for (unsigned i = first; i < first + 4; ++i) {
      std::mt19937_64 random(i);
      std::vector<Parameter> both(2, Parameter(128, 2, random, i % 2 == 0));
      TensorUpdate alone(optimizer, *cpu);
      for (TensorUpdate* update : {&together, &alone}) {
        Parameter& its = both[update == &alone];
        its.gradients.assign(128, 0.25F);
        UpdatedTensor tensor = its.tensor();
        if (i / 2 % 2 == 0) tensor.bf16 = {};
        update->run(std::vector{tensor}, 0.5, 1);
      }
      EXPECT_EQ(both[0].weights, both[1].weights) << i;
      EXPECT_EQ(both[0].bf16, both[1].bf16) << i;
    }
  }
}

TEST(Optimizer, BitsDoNotDependOnTheNumberOfThreads) {
  for (const char* name : {"adamw", "sgd", "lion"}) {
    std::vector<std::vector<Parameter>> runs;
    for (const int threads : {1, 2, 5}) {
      const auto cpu = cpu::make_cpu_backend({.threads = threads});
      TensorUpdate update(make_optimizer(name), *cpu);
      std::mt19937_64 random(3);
      std::vector<Parameter> parameters = make_parameters(make_optimizer(name), random);
      for (int step = 1; step <= 3; ++step) {
        draw_gradients(parameters, random);
        step_all(update, parameters, 0.01, step, 0.5);
      }
      runs.push_back(std::move(parameters));
    }
    for (size_t run = 1; run < runs.size(); ++run) {
      for (size_t p = 0; p < runs[0].size(); ++p) {
        EXPECT_EQ(runs[run][p].weights, runs[0][p].weights);
        EXPECT_EQ(runs[run][p].states, runs[0][p].states);
        EXPECT_EQ(runs[run][p].bf16, runs[0][p].bf16);
      }
    }
  }
}

// A weight's step in units of the learning rate is about 1 with AdamW, always 1 with Lion, and with
// SGD as small as its gradient, so that the same rate suits none of them.
TEST(Optimizer, TheRateOfEachIsAMultipleOfAdamWs) {
  EXPECT_EQ(optimizer_kind("adamw").rate, 1);
  EXPECT_EQ(optimizer_kind("lion").rate, 0.25);
  EXPECT_EQ(optimizer_kind("sgd").rate, 25);
}

// An optimizer without state that moves each weight by the rate times the sign of its gradient.
TEST(Optimizer, MayBeAProgramsOwn) {
  Optimizer own;
  own.name = "signs";
  own.scalars = {{"rate", [](double rate, int64_t) { return rate; }}};
  own.formulas = "  w1 = decayed - scalar(rate) * (less(0, g) - less(g, 0))\n";
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  TensorUpdate update(own, *cpu);
  std::vector<float> weights = {1, 1, 1};
  const std::vector<float> gradients = {3, -1e-6F, 0};
  update.run(std::vector{UpdatedTensor{weights, {}, gradients, {}, true}}, 0.25, 1);
  EXPECT_EQ(weights, (std::vector<float>{0.75, 1.25, 1}));
  own.formulas = "  w1 = decayed - scalar(rate) * gg\n";
  EXPECT_THROW(TensorUpdate(own, *cpu), ProgramError);
}

TEST(Optimizer, RefusesSettingsWithoutMeaning) {
  const auto message = [](const char* name, const std::map<std::string, double>& settings,
                          DType states = DType::f32) {
    return error_message([&] { make_optimizer(name, settings, states); });
  };
  EXPECT_EQ(message("adamw", {}), "");
  EXPECT_THAT(message("adam", {}), HasSubstr("'adam': choose one of adamw, sgd, lion"));
  EXPECT_THAT(message("sgd", {{"beta1", 0.9}}),
              HasSubstr("'beta1' is no setting of sgd; its settings are momentum, decay"));
  EXPECT_THAT(message("adamw", {{"beta1", 1}}), HasSubstr("beta1 must be at least 0 and below 1"));
  EXPECT_THAT(message("lion", {{"beta2", -0.1}}), HasSubstr("lion: beta2"));
  EXPECT_THAT(message("sgd", {{"momentum", 1}}), HasSubstr("momentum"));
  EXPECT_THAT(message("adamw", {{"adam-eps", -1}}), HasSubstr("adam-eps must be a number from 0"));
  EXPECT_THAT(message("adamw", {{"decay", std::nan("")}}), HasSubstr("decay"));
  EXPECT_THAT(message("adamw", {}, DType::f16), HasSubstr("f32 or bf16, not f16"));
  EXPECT_EQ(message("adamw", {{"beta2", 0.999}}, DType::bf16), "");
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  TensorUpdate update(make_optimizer("adamw"), *cpu);
  for (const double rate : {-0.1, std::nan("")})
    EXPECT_THAT(error_message([&] { update.run({}, rate, 1); }), HasSubstr("learning rate"));
}

}  // namespace
}  // namespace coda
