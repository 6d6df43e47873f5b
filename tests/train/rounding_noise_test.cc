// SPDX-License-Identifier: Apache-2.0
// Weights and states in bf16: each step rounds them by noise that is a known function of the seed,
// the step, the tensor and the element, on the host and in matrices, for any number of processes;
// what the steps add up to is not lost, as rounding to nearest would lose it.
#include "train/rounding_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/philox.h"
#include "coda/checkpoint.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/trainer.h"
#include "collective/threads.h"
#include "cpu/cpu_backend.h"
#include "io/error_message.h"
#include "io/safetensors.h"
#include "io/temp_folder.h"
#include "runtime/far_backend.h"
#include "runtime/reference_backend.h"

namespace coda {
namespace {

using testing::HasSubstr;

namespace noise_of_updates {

// The definition, written again with integers: element `index` of a parameter whose rows start at
// `first_row`; tensor 0 is the weight, then the states.
float rounded(float x, uint64_t seed, int64_t step, uint32_t tensor, int64_t first_row,
              size_t index) {
  const auto start = static_cast<uint32_t>(seed * 0x9E3779B97F4A7C15ULL >> 32);
  const uint32_t key = (4 * (start + static_cast<uint32_t>(step)) & 0xffffff) + tensor;
  const auto row = static_cast<uint32_t>(first_row + static_cast<int64_t>(index / 512));
  const auto column = static_cast<uint32_t>(index % 512);
  const uint32_t noise = philox({row, column / 2}, key)[column % 2] >> 16;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + noise) & 0xffff0000U);
}

TEST(RoundingNoise, IsAKnownFunctionOfSeedStepTensorAndElement) {
  const auto cpu = cpu::make_cpu_backend({.threads = 2});
  for (const uint64_t seed : {1U, 77U}) {
    const Optimizer plain = make_optimizer("adamw");
    Optimizer noisy = make_optimizer("adamw", {}, DType::bf16);
    noisy.weights = DType::bf16;
    noisy.seed = seed;
    TensorUpdate in_fp32(plain, *cpu);
    TensorUpdate in_bf16(noisy, *cpu);
    const std::vector<size_t> sizes = {3, 512, 1300};  // rows of noise: 1, 1, 3
    const std::vector<int64_t> first_rows = {0, 1, 2};
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    const auto drawn = [&](size_t count) {
      std::vector<float> values(count);
      for (float& value : values) value = float_from_bf16(bf16_from_float(normal(random)));
      return values;
    };
    std::vector<std::vector<float>> weights, m, v, gradients;
    for (const size_t size : sizes) {
      weights.push_back(drawn(size));
      m.emplace_back(size);
      v.emplace_back(size);
    }
    for (int64_t step = 1; step <= 3; ++step) {
      gradients.clear();
      for (const size_t size : sizes) gradients.push_back(drawn(size));
      auto exact_weights = weights, exact_m = m, exact_v = v;
      std::vector<std::vector<uint16_t>> bf16;
      const auto tensors = [&](auto& of_weights, auto& of_m, auto& of_v) {
        std::vector<UpdatedTensor> all;
        bf16.assign(sizes.size(), {});
        for (size_t i = 0; i < sizes.size(); ++i) {
          bf16[i].resize(sizes[i]);
          all.push_back({of_weights[i], {of_m[i], of_v[i]}, gradients[i], bf16[i], i != 1});
        }
        return all;
      };
      in_fp32.run(tensors(exact_weights, exact_m, exact_v), 0.01, step);
      in_bf16.run(tensors(weights, m, v), 0.01, step);
      for (size_t i = 0; i < sizes.size(); ++i) {
        for (size_t j = 0; j < sizes[i]; ++j) {
          const auto expected = [&](float x, uint32_t tensor) {
            return rounded(x, seed, step, tensor, first_rows[i], j);
          };
          ASSERT_EQ(weights[i][j], expected(exact_weights[i][j], 0)) << i << " " << j;
          ASSERT_EQ(m[i][j], expected(exact_m[i][j], 1));
          ASSERT_EQ(v[i][j], expected(exact_v[i][j], 2));
          ASSERT_EQ(float_from_bf16(bf16[i][j]), weights[i][j]);
        }
      }
    }
  }
}

// A parameter that the plan reads as fp32 (without a copy) keeps its fp32 weights.
TEST(RoundingNoise, IsOnlyForWeightsThatAreReadInBf16) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  Optimizer optimizer = make_optimizer("sgd", {{"momentum", 0}, {"decay", 0}});
  optimizer.weights = DType::bf16;
  TensorUpdate update(optimizer, *cpu);
  std::vector<float> weights = {1.001F, 2};
  const std::vector<float> gradients = {0.5F, 0};
  update.run(std::vector{UpdatedTensor{weights, {}, gradients, {}, true}}, 0.01, 1);
  EXPECT_EQ(weights, (std::vector{1.001F - 0.01F * 0.5F, 2.0F}));
}

// 4096 steps of 2^-12: each is a 32nd of the distance of bf16 numbers there, so rounding to nearest
// would restore the weight each time.
TEST(RoundingNoise, SmallStepsAddUp) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  Optimizer optimizer = make_optimizer("sgd", {{"momentum", 0}, {"decay", 0}});
  optimizer.weights = DType::bf16;
  TensorUpdate update(optimizer, *cpu);
  constexpr size_t kCount = 1024;
  std::vector<float> weights(kCount, 1);
  const std::vector<float> gradients(kCount, -0x1p-12F);
  std::vector<uint16_t> bf16(kCount);
  for (int64_t step = 1; step <= 4096; ++step)
    update.run(std::vector{UpdatedTensor{weights, {}, gradients, bf16, false}}, 1, step);
  double sum = 0, squares = 0;
  for (const float w : weights) {
    sum += w;
    squares += (w - 2.0) * (w - 2.0);
  }
  // A step adds 2^-7 with probability 1/32: a variance of 4096 * 2^-14 / 32 * (31 / 32).
  const double deviation = std::sqrt(4096 * 0x1p-14 * 31) / 32;
  EXPECT_NEAR(sum / kCount, 2, 5 * deviation / std::sqrt(kCount));
  EXPECT_NEAR(std::sqrt(squares / kCount), deviation, 0.2 * deviation);
}

// With beta2 = 0.999 the second moment of a gradient that has become small fades.
TEST(RoundingNoise, StatesFade) {
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  TensorUpdate update(make_optimizer("adamw", {{"beta2", 0.999}}, DType::bf16), *cpu);
  constexpr size_t kCount = 1024;
  std::vector<float> weights(kCount), m(kCount), v(kCount, 1);
  const std::vector<float> gradients(kCount);
  for (int64_t step = 1; step <= 1000; ++step)
    update.run(std::vector{UpdatedTensor{weights, {m, v}, gradients, {}, false}}, 1e-3, step);
  double sum = 0;
  for (const float x : v) sum += x;
  EXPECT_NEAR(sum / kCount, std::pow(0.999, 1000), 0.01);
}

// y = x · W1ᵀ · W2ᵀ, and the sum of (y - t)^2.
struct Net {
  int64_t hidden = 40;
  Graph graph{};
  Value x = graph.input("x", {"M", 64});
  Value t = graph.input("t", {"M", 8});
  Value w1 = graph.parameter("w1", {hidden, 64}, DType::bf16);
  Value b = graph.parameter("b", {1, hidden});
  Value w2 = graph.parameter("w2", {8, hidden}, DType::bf16);
  Value error = linear(linear(x, w1) + b, w2) - t;
  Value loss = row_sum(col_sum(error * error));
};

TensorMap batch_of(int64_t step) {
  constexpr int64_t kRows = 16;
  TensorMap batch = {{"x", Tensor(DType::f32, kRows, 64)}, {"t", Tensor(DType::f32, kRows, 8)}};
  for (auto& [name, tensor] : batch) {
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i + static_cast<size_t>(31 * step)));
    tensor.set(values);
  }
  return batch;
}

TrainOptions noisy_options() {
  TrainOptions options;
  options.sizes = {{"M", 16}};
  options.storage = DType::bf16;
  options.schedule = {.peak = 1e-2, .floor = 1e-3, .warmup_steps = 2, .total_steps = 20};
  options.optimizer = make_optimizer("adamw", {}, DType::bf16);
  options.optimizer.weights = DType::bf16;
  return options;
}

// Processes that compute the same gradients have their mean, exactly. Each of four processes
// updates rows of w1.
TEST(RoundingNoise, IsTheSameForAnyNumberOfProcesses) {
  const Net net{.hidden = 2048};
  std::vector<std::vector<float>> of_one;
  for (const int processes : {1, 2, 4}) {
    in_threads(processes, [&](Communicator& communicator) {
      ReferenceBackend backend;
      TrainOptions options = noisy_options();
      options.communicator = &communicator;
      Trainer trainer(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options);
      for (int64_t step = 0; step < 2; ++step) trainer.step(batch_of(step));
      trainer.fetch();
      if (communicator.rank() > 0) return;
      std::vector<std::vector<float>> state;
      for (size_t i = 0; i < trainer.weights.size(); ++i) {
        const WeightTensor& w = trainer.weights[i];
        state.push_back(w.values);
        for (const auto& [name, values] : trainer.states[i]) state.push_back(values);
        for (size_t j = 0; j < w.bf16.size(); ++j)
          ASSERT_EQ(w.values[j], float_from_bf16(w.bf16[j])) << w.name;
      }
      if (processes == 1) of_one = state;
      EXPECT_EQ(state, of_one) << processes;
    });
  }
}

// The programs for matrices and for the host's tensors round fp32 values that differ in the last
// bit at most, which seldom decides how they are rounded to bf16.
TEST(RoundingNoise, IsTheSameInMatricesAndOnTheHost) {
  const Net net;
  ReferenceBackend backend;
  in_threads(1, [&](Communicator& communicator) {
    TrainOptions options = noisy_options();
    Trainer host(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options);
    options.communicator = &communicator;
    Trainer matrices(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options);
    for (Trainer* trainer : {&host, &matrices}) {
      trainer->step(batch_of(0));
      trainer->fetch();
    }
    for (const char* name : {"w1", "w2"}) {
      const std::vector<float>& a = find_weight(host.weights, name).values;
      const std::vector<float>& b = find_weight(matrices.weights, name).values;
      int different = 0;
      for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1 : 0;
      EXPECT_LE(different, static_cast<int>(a.size() / 100)) << name;
    }
  });
}

// Where the states are changes no bit, also of what is fetched and restored.
TEST(StatesOnTheHost, TrainTheSame) {
  const Net net;
  for (const DType states : {DType::f32, DType::bf16}) {
    FarBackend backend;
    TrainOptions options = noisy_options();
    options.optimizer.states = make_optimizer("adamw", {}, states).states;
    Trainer own(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options);
    options.optimizer.states_on_host = true;
    Trainer host(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), backend, options);
    for (int64_t step = 0; step < 4; ++step) {
      for (Trainer* trainer : {&own, &host}) {
        trainer->step(batch_of(step));
        trainer->fetch();
      }
      if (step == 1) host.restored();
    }
    for (size_t i = 0; i < own.weights.size(); ++i) {
      EXPECT_EQ(own.weights[i].values, host.weights[i].values);
      EXPECT_EQ(own.states[i], host.states[i]);
    }
  }
}

// Initial weights are rounded too, and a checkpoint has each weight once.
TEST(RoundingNoise, ACheckpointHasBf16WeightsAlone) {
  const Net net;
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  FarBackend far;
  for (Backend* backend : {cpu.get(), static_cast<Backend*>(&far)}) {
    const TempFolder folder;
    Trainer trainer(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), *backend,
                    noisy_options());
    EXPECT_EQ(trainer.weights[0].values[0], float_from_bf16(trainer.weights[0].bf16[0]));
    trainer.step(batch_of(0));
    const auto checkpoint = save_checkpoint(folder.path(), trainer);
    const auto stored = io::open_safetensors(checkpoint / "optimizer.safetensors");
    EXPECT_EQ(stored.find("master.w1"), nullptr);
    EXPECT_NE(stored.find("m.w1"), nullptr);

    TrainOptions other = noisy_options();
    other.optimizer.weights = DType::f32;
    Trainer with_masters(net.graph, net.loss, initial_weights(net.graph, 3, 0.3), *backend, other);
    EXPECT_THAT(error_message([&] { load_checkpoint(folder.path(), with_masters); }),
                HasSubstr("master.w1"));
  }
}

TEST(RoundingNoise, WhatCannotBeRoundedIsRefused) {
  Graph graph;
  const Value w = graph.parameter("w", {1, 4});
  const Value loss = row_sum(w * w);
  const auto cpu = cpu::make_cpu_backend({.threads = 1});
  TrainOptions options = noisy_options();
  EXPECT_THAT(
      error_message([&] { Trainer(graph, loss, initial_weights(graph, 1), *cpu, options); }),
      HasSubstr("master weights in bf16 are those of parameters that the plan reads in bf16"));
  Optimizer four = make_optimizer("adamw", {}, DType::bf16);
  four.states = {{"a", DType::bf16}, {"b"}, {"c"}, {"d"}};
  EXPECT_THAT(error_message([&] { with_noise(four); }), HasSubstr("at most 3"));
  const std::vector<int64_t> elements = {(int64_t{1} << 33) - 1, 1};
  EXPECT_THAT(error_message([&] { noise_rows(elements); }), HasSubstr("at most 8.6e9 weights"));
}

}  // namespace noise_of_updates
}  // namespace
}  // namespace coda
