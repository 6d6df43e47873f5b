// SPDX-License-Identifier: Apache-2.0
// Training on the CPU backend: it learns, passes add up to one large batch, and bits depend on
// neither threads nor interruptions.
#include "coda/model_trainer.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <cmath>
#include <limits>
#include <utility>

#include "coda/error.h"
#include "cpu/cpu_backend.h"
#include "runtime/far_backend.h"
#include "train/given_copies.h"
#include "train/tiny_model.h"

namespace coda {
namespace {

TEST(ModelTrainer, LearnsATextThatFollowsARule) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (DType storage : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(std::string(name_of(storage)));
    ModelTrainSettings settings = tiny_settings();
    settings.storage = storage;
    ModelTrainer trainer(settings, text, *backend);
    const double first = trainer.step().loss;
    double last = 0;
    while (trainer.step_count < settings.schedule.total_steps) last = trainer.step().loss;
    EXPECT_NEAR(first, std::log(256), 0.3);  // it starts knowing nothing
    EXPECT_LT(last, 0.6 * first);
  }
}

ModelTrainSettings eight_bit_settings() {
  ModelTrainSettings settings = tiny_settings();
  settings.storage = DType::bf16;
  settings.eight_bits = EightBits::fp8;
  return settings;
}

// As it learns in bf16: on 60 steps the losses differ by less than 3 %.
TEST(ModelTrainer, LearnsWithProductsInEightBits) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  double last[3] = {};
  for (const EightBits eight : {EightBits::none, EightBits::fp8, EightBits::fp8_kept}) {
    ModelTrainSettings settings = eight_bit_settings();
    settings.eight_bits = eight;
    ModelTrainer trainer(settings, text, *backend);
    const double first = trainer.step().loss;
    EXPECT_NEAR(first, std::log(256), 0.3);
    while (trainer.step_count < settings.schedule.total_steps)
      last[static_cast<int>(eight)] = trainer.step().loss;
    EXPECT_LT(last[static_cast<int>(eight)], 0.6 * first);
  }
  for (int i = 1; i < 3; ++i) {
    EXPECT_NE(last[i], last[i - 1]);
    EXPECT_NEAR(last[i], last[0], 0.03 * last[0]);
  }
}

// The head's products too, a block of the logits at a time, the last one shorter: of gradients that
// are added up over blocks, and over passes.
// As a GPU without 8-bit floats.
class WithoutEightBits : public FarBackend {
 public:
  std::string why_no_eight_bits() const override { return "this GPU has no 8-bit floats"; }
};

TEST(ModelTrainer, EightBitsAreRefusedWhereThereAreNone) {
  const Tokens text = counting_text(500);
  WithoutEightBits backend;
  try {
    ModelTrainer trainer(eight_bit_settings(), text, backend);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "this GPU has no 8-bit floats. Remedy: train in bf16 (--dtype bf16)");
  }
}

TEST(ModelTrainer, EightBitsLearnInBlocksOfTheLogits) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 2});
  for (const int64_t accumulate : {1, 2}) {
    double last[2] = {};
    for (const int64_t rows : {0, 64}) {
      ModelTrainSettings settings = eight_bit_settings();
      settings.accumulate = accumulate;
      settings.loss_rows = rows;
      ModelTrainer trainer(settings, text, *backend);
      for (int i = 0; i < 30; ++i) last[rows / 64] = trainer.step().loss;
    }
    EXPECT_NE(last[0], last[1]);
    EXPECT_NEAR(last[1], last[0], 0.02 * last[0]);
  }
}

// Scales are a part of the state, whatever losses are asked for in between; and of no thread.
TEST(ModelTrainer, EightBitsGoOnFromARestoredStateAsIfTheyHadNotStopped) {
  const Tokens text = counting_text(500);
  const auto one = cpu::make_cpu_backend({.threads = 1});
  const auto three = cpu::make_cpu_backend({.threads = 3});
  const ModelTrainSettings settings = eight_bit_settings();
  ModelTrainer whole(settings, text, *one);
  ModelTrainer resumed(settings, text, *three);
  resumed.require_sound();
  for (int i = 0; i < 4; ++i) whole.step();
  whole.fetch();
  EXPECT_FALSE(whole.eight_bit_scales.empty());
  go_on_from(resumed, whole);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(whole.step().loss, resumed.step().loss);
    resumed.require_sound();
  }
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << whole.weights[i].name;
  }
  ModelTrainSettings plain = settings;
  plain.eight_bits = EightBits::none;
  ModelTrainer other(plain, text, *one);
  other.eight_bit_scales = whole.eight_bit_scales;
  EXPECT_THROW(other.restored(), Error);
}

// The update leaves what the programs of copies make of the weights and the scales behind it: a
// restored trainer runs those.
TEST(ModelTrainer, CopiesOfWeightsInEightBitsAreThoseOfTheWeightsAndTheScalesOfTheNextStep) {
  const Tokens text = counting_text(500);
  FarBackend far;
  const auto host = cpu::make_cpu_backend({});
  // The queries, keys and values of GPT-2 are columns of one weight, copied each for itself.
  const ModelConfig models[] = {
      tiny_model_of_wide_rows(),
      Gpt2Config{.layers = 2, .hidden = 64, .heads = 2, .vocab = 256, .positions = 64, .mlp = 128}};
  for (Backend* backend : {static_cast<Backend*>(&far), host.get()}) {
    for (const ModelConfig& model : models) {
      SCOPED_TRACE(std::string(backend->name()) + ", model " + std::to_string(model.index()));
      ModelTrainSettings settings = eight_bit_settings();
      settings.model = model;
      ModelTrainer trainer(settings, text, *backend);
      trainer.step();
      trainer.fetch();
      const std::vector<float> scales = trainer.eight_bit_scales;
      const auto before = given_copies(trainer, *backend);
      EXPECT_GT(before.size(), 8U);
      EXPECT_EQ(before.contains("transformer.h.1.attn.c_attn.weight.columns64_e4m3"),
                std::holds_alternative<Gpt2Config>(model));
      trainer.step();
      const auto made = given_copies(trainer, *backend);
      EXPECT_NE(made, before);
      trainer.fetch();
      EXPECT_NE(trainer.eight_bit_scales, scales);
      trainer.restored();
      EXPECT_EQ(given_copies(trainer, *backend), made);
    }
  }
}

// A weight that did not change then has the code that it had a step before.
TEST(ModelTrainer, ScalesOfProductsInEightBitsArePowersOfTwo) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({});
  ModelTrainer trainer(eight_bit_settings(), text, *backend);
  for (int i = 0; i < 3; ++i) trainer.step();
  trainer.fetch();
  const std::vector<float>& state = trainer.eight_bit_scales;
  const size_t scales = state.size() / 3;
  ASSERT_GT(scales, 0U);
  for (size_t i = 0; i < scales; ++i) {
    const float remembered = state[i];
    const float scale = state[scales + i];
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << i << ": " << scale;
    EXPECT_EQ(scale * state[2 * scales + i], 1.0F) << i;
    EXPECT_GE(remembered * scale, 85) << i;
    EXPECT_LE(remembered * scale, 193) << i;
  }
}

ModelTrainSettings deep_settings(int layers = 6) {
  ModelTrainSettings settings = tiny_settings();
  std::get<LlamaConfig>(settings.model).layers = layers;
  return settings;
}

// In fp32 a recomputed value equals the saved one; in 16 bits it may not have been rounded, and in
// 8 bits scales learn of other values. With passes that add up, and on any number of threads.
TEST(ModelTrainer, RecomputedLayersTrainTheSame) {
  const Tokens text = counting_text(500);
  const auto one = cpu::make_cpu_backend({.threads = 1});
  const auto three = cpu::make_cpu_backend({.threads = 3});
  struct Case {
    DType storage;
    EightBits eight_bits;
    double tolerance;
  };
  for (const Case& c :
       {Case{DType::f32, EightBits::none, 2e-6}, Case{DType::bf16, EightBits::none, 2e-3},
        Case{DType::bf16, EightBits::fp8, 1e-2}}) {
    for (const int64_t accumulate : {1, 2}) {
      ModelTrainSettings settings = deep_settings();
      settings.storage = c.storage;
      settings.eight_bits = c.eight_bits;
      settings.accumulate = accumulate;
      settings.loss_rows = accumulate == 1 ? 0 : 64;
      ModelTrainer kept(settings, text, *one);
      const bool are_all = accumulate == 1;
      settings.recomputed_layers = are_all ? kAllLayers : 3;  // of six
      ModelTrainer again(settings, text, *one), on_three(settings, text, *three);
      EXPECT_LT(static_cast<double>(again.session().saved_bytes()),
                (are_all ? 0.5 : 0.8) * static_cast<double>(kept.session().saved_bytes()));
      for (int i = 0; i < 5; ++i) {
        const StepReport wanted = kept.step(), report = again.step(), other = on_three.step();
        EXPECT_NEAR(report.loss, wanted.loss, c.tolerance * wanted.loss);
        EXPECT_NEAR(report.norm, wanted.norm, 10 * c.tolerance * wanted.norm);
        EXPECT_EQ(other.loss, report.loss);
        EXPECT_EQ(other.norm, report.norm);
      }
    }
  }
}

TEST(ModelTrainer, PassesAddUpToTheStepOfOneLargeBatch) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainSettings settings = tiny_settings();
  ModelTrainer whole(settings, text, *backend);
  settings.batch = 1;
  settings.accumulate = 4;
  ModelTrainer parts(settings, text, *backend);
  for (int i = 0; i < 3; ++i) {
    const StepReport a = whole.step();
    const StepReport b = parts.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-4 * a.loss);
    EXPECT_NEAR(a.norm, b.norm, 1e-3 * a.norm);
  }
}

TEST(ModelTrainer, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tokens text = counting_text(500);
  const ModelTrainSettings settings = tiny_settings();
  const auto one = cpu::make_cpu_backend({.threads = 1});
  const auto three = cpu::make_cpu_backend({.threads = 3});
  ModelTrainer a(settings, text, *one);
  ModelTrainer b(settings, text, *three);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(a.step().loss, b.step().loss);
  }
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_EQ(a.weights[i].values, b.weights[i].values) << a.weights[i].name;
  }
}

TEST(ModelTrainer, GoesOnFromARestoredStateAsIfItHadNotStopped) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainSettings settings = tiny_settings();
  settings.storage = DType::bf16;
  ModelTrainer whole(settings, text, *backend);
  for (int i = 0; i < 4; ++i) whole.step();
  ModelTrainer resumed(settings, text, *backend);
  go_on_from(resumed, whole);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(whole.step().loss, resumed.step().loss);
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << whole.weights[i].name;
  }
}

// Logits in blocks of 64 of 96 tokens, in one pass and added up over two.
TEST(ModelTrainer, BlocksOfTheLogitsTrainAlike) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (const DType storage : {DType::f32, DType::bf16}) {
    for (const int64_t accumulate : {1, 2}) {
      SCOPED_TRACE(std::string(name_of(storage)) + ", passes " + std::to_string(accumulate));
      ModelTrainSettings settings = tiny_settings();
      settings.storage = storage;
      settings.accumulate = accumulate;
      settings.loss_rows = 0;
      ModelTrainer whole(settings, text, *backend);
      settings.loss_rows = 64;
      ModelTrainer blocks(settings, text, *backend);
      ASSERT_EQ(blocks.session().plan().loops.size(), 1U);
      EXPECT_TRUE(whole.session().plan().loops.empty());
      const double tolerance = storage == DType::f32 ? 1e-4 : 1e-2;
      for (int i = 0; i < 5; ++i) {
        const StepReport a = whole.step();
        const StepReport b = blocks.step();
        EXPECT_NEAR(a.loss, b.loss, tolerance * a.loss);
        EXPECT_NEAR(a.norm, b.norm, 10 * tolerance * a.norm);
      }
    }
  }
}

TEST(ModelTrainer, BlocksOfTheLogitsGiveTheSameBitsForAnyThreadsAndFromARestoredState) {
  const Tokens text = counting_text(500);
  const auto one = cpu::make_cpu_backend({.threads = 1});
  const auto three = cpu::make_cpu_backend({.threads = 3});
  ModelTrainSettings settings = tiny_settings();
  settings.loss_rows = 64;
  ModelTrainer whole(settings, text, *one);
  for (int i = 0; i < 3; ++i) whole.step();
  ModelTrainer resumed(settings, text, *three);
  go_on_from(resumed, whole);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(whole.step().loss, resumed.step().loss);
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    EXPECT_EQ(whole.weights[i].values, resumed.weights[i].values) << whole.weights[i].name;
  }
}

// Of 384 tokens' logits 64 lie in memory; the products that wait for the scale are kept.
TEST(ModelTrainer, BlocksOfTheLogitsTakeTheMemoryOfABlock) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainSettings settings = tiny_settings();
  settings.batch = 16;
  const int64_t tokens = settings.batch * settings.sequence;
  const auto memory = [&](int64_t loss_rows) {
    settings.loss_rows = loss_rows;
    const ModelTrainer trainer(settings, text, *backend);
    return trainer.session().arena_bytes() + trainer.session().saved_bytes();
  };
  constexpr int64_t kHidden = 32;
  constexpr int64_t kVocabulary = 256;
  const int64_t logits = 4 * (tokens - 64) * kVocabulary;
  const int64_t products = 4 * (tokens + kVocabulary) * kHidden;
  EXPECT_GE(memory(0) - memory(64), logits - products);
}

// What an update left behind: a weight that no batch may ever show, or finite ones that overflow.
TEST(ModelTrainer, ASoundStateHasFiniteWeightsAndAFiniteLossAndStaysAsItIs) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainer plain(tiny_settings(), text, *backend);
  ModelTrainer checked(tiny_settings(), text, *backend);
  for (int i = 0; i < 3; ++i) {
    checked.require_sound();
    EXPECT_EQ(plain.step().loss, checked.step().loss);
  }
  const auto message = [&](size_t tensor, size_t element, float value) {
    const float kept = std::exchange(checked.weights[tensor].values[element], value);
    try {
      checked.require_sound();
    } catch (const Error& error) {
      checked.weights[tensor].values[element] = kept;
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const size_t unused = 32 * 'z' + 5;  // of a token that the text does not have
  EXPECT_EQ(message(0, unused, std::numeric_limits<float>::infinity())
                .find("after step 3: the values of " + checked.weights[0].name + " are not finite"),
            0U);
  EXPECT_EQ(message(0, 32 * '1', 3e38F).find("after step 3: the loss is not finite"), 0U);
  EXPECT_EQ(plain.step().loss, checked.step().loss);
}

TEST(ModelTrainer, ALossThatIsNotFiniteLeavesTheStateAsItWas) {
  const Tokens text = counting_text(500);
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  ModelTrainer trainer(tiny_settings(), text, *backend);
  trainer.step();
  trainer.weights[0].values[32 * '1'] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = trainer.weights[1].values;
  try {
    trainer.step();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("step 2: the loss is not finite"), 0U) << error.what();
  }
  EXPECT_EQ(trainer.step_count, 1);
  EXPECT_EQ(trainer.weights[1].values, before);
}

}  // namespace
}  // namespace coda
