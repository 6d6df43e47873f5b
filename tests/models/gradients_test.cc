// SPDX-License-Identifier: Apache-2.0
// Gradients of whole models against finite differences in float64, at elements of every parameter;
// and what initial values promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coda/error.h"
#include "coda/models.h"
#include "grad/central_difference.h"
#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "models/llama.h"
#include "models/model_data.h"
#include "models/rope_angles.h"

namespace coda {
namespace {

LlamaConfig tiny_llama() {
  LlamaConfig c;
  c.layers = 2;
  c.hidden = 12;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 4;
  c.mlp = 10;
  c.vocab = 17;
  c.rope_scaling = Llama3RopeScaling{4, 1, 4, 8};
  return c;
}

Gpt2Config tiny_gpt2() {
  return {.layers = 2, .hidden = 12, .heads = 3, .vocab = 17, .positions = 9, .mlp = 20};
}

// Two of the four channels of a head turn.
GptNeoxConfig tiny_gpt_neox(bool parallel) {
  return {.layers = 2,
          .hidden = 12,
          .heads = 3,
          .mlp = 20,
          .vocab = 17,
          .rotary_dim = 2,
          .parallel = parallel,
          .attention_bias = parallel,
          .exact_gelu = parallel,
          .tied = !parallel};
}

class Models : public testing::TestWithParam<ModelConfig> {};

TEST_P(Models, GradientsAreThoseOfFiniteDifferences) {
  constexpr int64_t kTokens = 10;
  constexpr int64_t kSequence = 5;
  auto model = build_model(GetParam(), {.positions = 6});
  Inputs inputs = fixed_inputs(*model, kTokens, kSequence);
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < kTokens; ++i) {
    inputs["ids"].push_back(static_cast<double>(random() % 17));
    inputs["targets"].push_back(i == 3 ? kIgnoredTarget : static_cast<double>(random() % 17));
  }
  std::vector<int> wanted;
  for (const ModelParameter& p : model->parameters) {
    wanted.push_back(p.value.id);
    for (int64_t i = 0; i < p.count(); ++i) inputs[p.name].push_back(p.mean + 0.3 * normal(random));
  }
  const DimValues sizes{{"M", kTokens}, {"T", kSequence}};
  const auto gradients =
      differentiate(model->graph, {{model->loss.id, model->graph.constant(1)}}, wanted);
  std::vector<int> roots;
  for (const Value& g : gradients) {
    ASSERT_NE(g.graph, nullptr);
    roots.push_back(g.id);
  }
  const std::vector<Matrix> values = evaluate(model->graph, roots, inputs, sizes);
  auto loss = [&] { return evaluate(model->graph, {model->loss.id}, inputs, sizes)[0].data[0]; };
  for (size_t p = 0; p < roots.size(); ++p) {
    std::vector<double>& x = inputs[model->parameters[p].name];
    for (int check = 0; check < 3; ++check) {
      const size_t i = random() % x.size();
      EXPECT_NEAR(values[p].data[i], tests::central_difference(x[i], 1e-5, loss), 1e-8)
          << model->parameters[p].name << " element " << i;
    }
  }
}

LlamaConfig tied(LlamaConfig c) {
  c.tied = true;
  return c;
}

// What sets the family's architectures apart, all at once.
LlamaConfig all_settings(NormPlace norms) {
  LlamaConfig c = tiny_llama();
  c.norms = norms;
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.joined = c.unit_offset_norms = c.gelu = norms == NormPlace::both;
  c.query_key_norm = norms == NormPlace::both ? QueryKeyNorm::head : QueryKeyNorm::row;
  c.scaled_embedding = true;
  c.query_scalar = 7;
  c.score_cap = 2;
  c.logit_cap = 3;
  c.window = 2;
  c.windowed = {true, false};
  c.window_rope_theta = 50;
  if (norms == NormPlace::after) c.rotated = {false, true};
  return c;
}

// Each token has two experts; those that are normalised, in the second layer only.
LlamaConfig with_experts(bool normalised) {
  LlamaConfig c = tiny_llama();
  c.experts = Experts{.count = 4, .chosen = 2, .mlp = 6, .normalised = normalised};
  if (normalised) c.experts->layers = {false, true};
  return c;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Models,
                         testing::Values(ModelConfig(tiny_llama()), ModelConfig(tied(tiny_llama())),
                                         ModelConfig(all_settings(NormPlace::both)),
                                         ModelConfig(all_settings(NormPlace::after)),
                                         ModelConfig(with_experts(true)),
                                         ModelConfig(with_experts(false)), ModelConfig(tiny_gpt2()),
                                         ModelConfig(tiny_gpt_neox(true)),
                                         ModelConfig(tiny_gpt_neox(false))));

TEST(Models, ATiedHeadIsNoParameterOfItsOwn) {
  const auto untied = build(tiny_llama(), {.positions = 4});
  const auto shared = build(tied(tiny_llama()), {.positions = 4});
  EXPECT_NE(untied->graph.find_input("lm_head.weight"), -1);
  EXPECT_EQ(shared->graph.find_input("lm_head.weight"), -1);
  EXPECT_EQ(untied->parameter_count() - shared->parameter_count(), 17 * 12);
}

TEST_P(Models, ParametersAreAsManyAsTheConfigSays) {
  EXPECT_EQ(parameter_count_of(GetParam()),
            build_model(GetParam(), {.positions = 4})->parameter_count());
}

TEST(Models, RopeWantsPositions) {
  EXPECT_THAT([] { build_model(tiny_llama(), {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("ModelOptions::positions")));
}

TEST(Models, NormsAndBiasesDoNotDecayAndStayFp32) {
  const auto model = build_model(tiny_gpt2(), {.storage = DType::bf16});
  for (const ModelParameter& p : model->parameters) {
    const bool is_matrix = p.shape.size() == 2;
    EXPECT_EQ(p.decays, is_matrix) << p.name;
    EXPECT_EQ(model->graph.node(p.value.id).dtype, is_matrix ? DType::bf16 : DType::f32) << p.name;
  }
}

TEST(Models, InitialValuesAreAFunctionOfSeedAndName) {
  const ModelParameter p{"a", {200, 100}, {}, true, 0, 0.02};
  ModelParameter q = p;
  q.name = "b";
  std::vector<float> one(20000), again(20000), other_seed(20000), other_name(20000);
  initialize(p, 1, one);
  initialize(p, 1, again);
  initialize(p, 2, other_seed);
  initialize(q, 1, other_name);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other_seed);
  EXPECT_NE(one, other_name);
  double sum = 0, squares = 0;
  for (float v : one) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  EXPECT_NEAR(sum / 20000, 0, 4 * 0.02 / std::sqrt(20000));
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.02, 0.02 * 4 / std::sqrt(2 * 20000));
}

TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  LlamaConfig c = tiny_llama();
  c.head_dim = 64;
  c.rope_theta = 500000;
  c.rope_scaling = Llama3RopeScaling{};
  LlamaConfig plain = c;
  plain.rope_scaling.reset();
  const std::vector<double> scaled = rope_angles(c, 64).steps;
  const std::vector<double> usual = rope_angles(plain, 64).steps;
  EXPECT_EQ(usual[0], 1);
  EXPECT_EQ(scaled[0], 1);
  EXPECT_DOUBLE_EQ(scaled[31], usual[31] / 8);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_LE(scaled[i], usual[i]);
    EXPECT_GE(scaled[i], usual[i] / 8 * (1 - 1e-15));
  }
}

}  // namespace
}  // namespace coda
