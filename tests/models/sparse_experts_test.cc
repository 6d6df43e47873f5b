// SPDX-License-Identifier: Apache-2.0
// Sparse experts: what a layer of them is, in loops over tokens, with too few rows too; whole
// models with rows for all tokens give what dense experts give; and how many multiplications go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/relative_error.h"
#include "coda/error.h"
#include "coda/model_runner.h"
#include "coda/plan_cost.h"
#include "cpu/cpu_backend.h"
#include "grad/central_difference.h"
#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "models/experts.h"
#include "models/model_data.h"

namespace coda {
namespace {

namespace sparse_experts {

// A layer of experts over x [tokens, hidden], and its numbers.
struct Layer {
  Experts experts;
  int64_t hidden = 0;
  int64_t tokens = 0;
  int64_t rows = 0;  // of each expert
  ModelBuilder builder;
  Value y;
  Inputs inputs;

  Layer(const Experts& what, int64_t width, int64_t count, int64_t rows_of_expert)
      : experts(what),
        hidden(width),
        tokens(count),
        rows(rows_of_expert),
        builder({.positions = 1, .expert_rows = rows_of_expert}, 1, 0.02) {
    const Value x = builder.model().graph.input("x", {"M", hidden});
    y = mixture_of_experts(builder, experts, "", x, hidden);
  }

  DimValues sizes() const { return {{"M", tokens}}; }
  void fill(std::mt19937_64& random, bool router_is_zero) {
    std::normal_distribution<double> normal;
    for (const ModelParameter& p : builder.model().parameters) {
      const bool is_zero = router_is_zero && p.name == "mlp.gate.weight";
      for (int64_t i = 0; i < p.count(); ++i)
        inputs[p.name].push_back(is_zero ? 0 : 0.5 * normal(random));
    }
    for (int64_t i = 0; i < tokens * hidden; ++i) inputs["x"].push_back(normal(random));
  }

  // w · x of row `r` of x.
  std::vector<double> times(const std::string& weight, const double* x, int64_t cols) const {
    const std::vector<double>& w = inputs.at(weight);
    std::vector<double> result(w.size() / static_cast<size_t>(cols));
    for (size_t i = 0; i < result.size(); ++i)
      result[i] = std::inner_product(x, x + cols, &w[i * static_cast<size_t>(cols)], 0.0);
    return result;
  }

  // The layer in loops: tokens take their experts' rows in their order while there are some.
  std::vector<double> by_loops(int64_t& dropped) const {
    std::vector<double> result(static_cast<size_t>(tokens * hidden));
    std::vector<int64_t> taken(static_cast<size_t>(experts.count));
    dropped = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      const double* x = &inputs.at("x")[static_cast<size_t>(t * hidden)];
      const std::vector<double> scores = times("mlp.gate.weight", x, hidden);
      std::vector<int64_t> order(scores.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater<>(), [&](int64_t i) { return scores[i]; });
      order.resize(static_cast<size_t>(experts.chosen));
      double all = 0, chosen = 0;
      for (double s : scores) all += std::exp(s);
      for (int64_t e : order) chosen += std::exp(scores[e]);
      for (int64_t e : order) {
        if (taken[e]++ >= rows) {
          ++dropped;
          continue;
        }
        const std::string name = "mlp.experts." + std::to_string(e) + ".";
        std::vector<double> h = times(name + "gate_proj.weight", x, hidden);
        const std::vector<double> up = times(name + "up_proj.weight", x, hidden);
        for (size_t i = 0; i < h.size(); ++i) h[i] *= up[i] / (1 + std::exp(-h[i]));
        const std::vector<double> y_of_expert =
            times(name + "down_proj.weight", h.data(), experts.mlp);
        const double weight = std::exp(scores[e]) / (experts.normalised ? chosen : all);
        for (int64_t i = 0; i < hidden; ++i) result[t * hidden + i] += weight * y_of_expert[i];
      }
    }
    return result;
  }
};

Layer random_layer(std::mt19937_64& random) {
  const auto below = [&](uint64_t end) { return static_cast<int64_t>(random() % end); };
  Experts experts{.count = 1 + below(6), .mlp = 1 + below(7), .normalised = below(2) == 1};
  experts.chosen = 1 + below(static_cast<uint64_t>(experts.count));
  const int64_t tokens = 1 + below(20);
  return {experts, 1 + below(6), tokens, 1 + below(static_cast<uint64_t>(tokens))};
}

// The architectures with experts, each with what it has of its own.
std::vector<LlamaConfig> models_with_experts() {
  LlamaConfig c;
  c.layers = 2;
  c.hidden = 24;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.mlp = 20;
  c.vocab = 61;
  LlamaConfig mixtral = c, olmoe = c, qwen3 = c;
  mixtral.experts = Experts{.count = 8, .chosen = 2, .mlp = 20, .normalised = true};
  olmoe.experts = Experts{.count = 5, .chosen = 3, .mlp = 12};
  olmoe.query_key_norm = QueryKeyNorm::row;
  qwen3.experts =
      Experts{.count = 6, .chosen = 2, .mlp = 16, .normalised = true, .layers = {false, true}};
  qwen3.query_key_norm = QueryKeyNorm::head;
  return {mixtral, olmoe, qwen3};
}

constexpr int64_t kBatch = 4, kSequence = 40;

struct Batch {
  std::vector<int32_t> ids, targets;

  explicit Batch(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < kBatch * kSequence; ++i) {
      ids.push_back(static_cast<int32_t>(random() % 61));
      targets.push_back(i == 4 ? kIgnoredTarget : static_cast<int32_t>(random() % 61));
    }
  }
};

// The loss and all gradients in float64.
std::vector<Matrix> exact_step(const LlamaConfig& config, int64_t rows, const Weights& weights) {
  const auto model = build_model(config, {.positions = kSequence, .expert_rows = rows});
  Inputs inputs = fixed_inputs(*model, kBatch * kSequence, kSequence);
  const Batch batch(7);
  inputs["ids"].assign(batch.ids.begin(), batch.ids.end());
  inputs["targets"].assign(batch.targets.begin(), batch.targets.end());
  for (const WeightTensor& w : weights) inputs[w.name].assign(w.values.begin(), w.values.end());
  std::vector<int> roots{model->loss.id}, wanted;
  for (const ModelParameter& p : model->parameters) wanted.push_back(p.value.id);
  for (const Value& g :
       differentiate(model->graph, {{model->loss.id, model->graph.constant(1)}}, wanted))
    roots.push_back(g.id);
  return evaluate(model->graph, roots, inputs, {{"M", kBatch * kSequence}, {"T", kSequence}});
}

// Large enough for routers to tell tokens apart.
Weights weights_of(const LlamaConfig& config) {
  Weights weights = initial_weights(*build_model(config, {.positions = 1}), 5);
  for (WeightTensor& w : weights)
    if (w.shape.size() == 2)
      for (float& value : w.values) value *= 8;
  return weights;
}

double products_flops(const LlamaConfig& config, double capacity) {
  const ModelTaskGraph task = make_task(
      config,
      {.task = ModelTask::gradients, .batch = 4, .sequence = 256, .expert_capacity = capacity},
      cpu_rates());
  const Plan plan = compile(task.model->graph, task.request, task.options).plan;
  double flops = 0;
  for (const auto* steps : {&plan.forward, &plan.backward})
    for (const PlanStep& step : *steps)
      flops += cost_of(step, plan, task.options.sizes, cpu_rates()).flops;
  return flops;
}

}  // namespace sparse_experts

using namespace sparse_experts;

// Random sizes; half of the routers are 0, so that all tokens choose the same experts and the
// others have none.
TEST(SparseExperts, ALayerIsWhatItsDefinitionSays) {
  std::mt19937_64 random(3);
  int with_drops = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Layer layer = random_layer(random);
    layer.fill(random, trial % 2 == 0);
    const Value dropped = layer.builder.model().dropped;
    const std::vector<Matrix> results = evaluate(
        layer.builder.model().graph, {layer.y.id, dropped.id}, layer.inputs, layer.sizes());
    int64_t expected_drops = 0;
    const std::vector<double> expected = layer.by_loops(expected_drops);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(results[0].data[i], expected[i], 1e-12) << "trial " << trial << ", " << i;
    EXPECT_EQ(results[1].data[0], static_cast<double>(expected_drops)) << "trial " << trial;
    with_drops += expected_drops > 0 ? 1 : 0;
  }
  EXPECT_GT(with_drops, 10);
}

// Of x and every weight, where some tokens are left out.
TEST(SparseExperts, GradientsAreThoseOfFiniteDifferences) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 20; ++trial) {
    Layer layer = random_layer(random);
    layer.fill(random, false);
    Graph& graph = layer.builder.model().graph;
    const Value weight = graph.input("of_y", {"M", layer.hidden});
    for (int64_t i = 0; i < layer.tokens * layer.hidden; ++i)
      layer.inputs["of_y"].push_back(normal(random));
    const Value sum = col_sum(row_sum(layer.y * weight));
    std::vector<std::string> names{"x"};
    for (const ModelParameter& p : layer.builder.model().parameters) names.push_back(p.name);
    std::vector<int> wanted, roots;
    for (const std::string& name : names) wanted.push_back(graph.find_input(name));
    for (const Value& g : differentiate(graph, {{sum.id, graph.constant(1)}}, wanted))
      roots.push_back(g.id);
    const std::vector<Matrix> gradients = evaluate(graph, roots, layer.inputs, layer.sizes());
    const auto loss = [&] {
      return evaluate(graph, {sum.id}, layer.inputs, layer.sizes())[0].data[0];
    };
    for (size_t n = 0; n < names.size(); ++n) {
      std::vector<double>& values = layer.inputs[names[n]];
      const size_t i = random() % values.size();
      EXPECT_NEAR(gradients[n].data[i], tests::central_difference(values[i], 1e-6, loss), 1e-6)
          << "trial " << trial << ", " << names[n] << " element " << i;
    }
  }
}

TEST(SparseExperts, WithRowsForAllTokensWholeModelsAreTheDenseOnes) {
  for (const LlamaConfig& config : models_with_experts()) {
    const Weights weights = weights_of(config);
    const std::vector<Matrix> dense = exact_step(config, 0, weights);
    const std::vector<Matrix> sparse = exact_step(config, kBatch * kSequence, weights);
    ASSERT_EQ(dense.size(), sparse.size());
    for (size_t i = 0; i < dense.size(); ++i)
      EXPECT_LT(relative_error(sparse[i].data, dense[i].data), 1e-12)
          << (i == 0 ? "loss" : weights[i - 1].name);
  }
}

// Compiled plans on the CPU, with as many rows as there are tokens and with too few: the plan that
// is chosen, one whose backward runs layers again, and the unfused one.
TEST(SparseExperts, PlansGiveWhatFloat64Gives) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  for (const LlamaConfig& config : models_with_experts()) {
    Weights weights = weights_of(config);
    const double all =
        static_cast<double>(config.experts->count) / static_cast<double>(config.experts->chosen);
    for (const double capacity : {all, 0.05}) {
      const int64_t rows = expert_rows_of(config, capacity, kBatch * kSequence);
      const std::vector<Matrix> exact = exact_step(config, rows, weights);
      for (const auto& [fuse, again] : {std::pair(true, false), {true, true}, {false, false}}) {
        const ModelRunnerOptions options{.task = ModelTask::gradients,
                                         .batch = kBatch,
                                         .sequence = kSequence,
                                         .fuse = fuse,
                                         .expert_capacity = capacity};
        ModelTaskGraph task = make_task(config, options, backend->rates());
        task.options.recomputed_layers = again ? kAllLayers : 0;
        ModelRunner runner(std::move(task), options, *backend);
        runner.bind(tensors_of(weights, *backend));
        const Batch batch(7);
        runner.forward(batch.ids, batch.targets);
        EXPECT_EQ(runner.dropped() > 0, capacity < all);
        runner.backward(1);
        EXPECT_NEAR(runner.loss(), exact[0].data[0], 1e-5 * exact[0].data[0]);
        for (size_t i = 0; i < weights.size(); ++i) {
          const std::vector<float> gradient = runner.gradient(i);
          const std::vector<double> ours(gradient.begin(), gradient.end());
          EXPECT_LT(relative_error(ours, exact[i + 1].data), 1e-4)
              << weights[i].name << ", capacity " << capacity << ", fuse " << fuse;
        }
      }
    }
  }
}

// Tokens whose rows an expert has not are counted, and none is where there is room for all.
TEST(SparseExperts, ChoicesWithoutRoomAreCounted) {
  const auto backend = cpu::make_cpu_backend({.threads = 1});
  LlamaConfig config = models_with_experts()[0];
  config.layers = 1;
  Weights weights = weights_of(config);
  for (WeightTensor& w : weights)  // all tokens choose experts 0 and 1
    if (w.name == "model.layers.0.mlp.gate.weight") std::ranges::fill(w.values, 0.0F);
  constexpr int64_t kTokens = 256;
  for (const auto& [capacity, dropped] : {std::pair<double, int64_t>{4, 0}, {1, 2 * 192}}) {
    ModelRunner runner(config, {.batch = 1, .sequence = kTokens, .expert_capacity = capacity},
                       *backend);
    runner.bind(tensors_of(weights, *backend));
    runner.forward(std::vector<int32_t>(kTokens, 3), std::vector<int32_t>(kTokens, 5));
    EXPECT_EQ(runner.dropped(), dropped);
  }
}

// Each expert's products are of its rows: of 8 experts, 2 a token, with a capacity of 1.25 that is
// 1.25 * 2 / 8 of the dense ones. They are nine, three forward and six backward.
TEST(SparseExperts, MultiplyRowsThatChoseThemOnly) {
  LlamaConfig config = models_with_experts()[0];
  config.hidden = 64;
  config.experts->mlp = 128;
  const double of_experts = 9 * 2.0 * 2 * 8 * 4 * 256 * 64 * 128;
  const double dense = products_flops(config, 0), sparse = products_flops(config, 1.25);
  EXPECT_NEAR((dense - sparse) / of_experts, 1 - 1.25 * 2 / 8, 0.01);
  EXPECT_LT(sparse, 0.5 * dense);
}

TEST(SparseExperts, RowsAreTheMeanTimesTheCapacityInTilesOf64) {
  const ModelConfig config = models_with_experts()[0];  // 2 of 8
  EXPECT_EQ(expert_rows_of(config, 0, 4096), 0);
  EXPECT_EQ(expert_rows_of(config, 1, 4096), 1024);
  EXPECT_EQ(expert_rows_of(config, 1.25, 4096), 1280);
  EXPECT_EQ(expert_rows_of(config, 1.26, 4096), 1344);
  EXPECT_EQ(expert_rows_of(config, 1e-9, 4096), 64);
  EXPECT_EQ(expert_rows_of(config, 4, 4096), 4096);
  EXPECT_EQ(expert_rows_of(config, 1e6, 4096), 4096);
  EXPECT_EQ(expert_rows_of(config, 1, 50), 50);
}

TEST(SparseExperts, ACapacityThatHasNoMeaningIsRefused) {
  const LlamaConfig config = models_with_experts()[0];
  LlamaConfig plain = config;
  plain.experts.reset();
  const auto message = [](const ModelConfig& c, double capacity) {
    try {
      expert_rows_of(c, capacity, 64);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(plain, 0), "");
  EXPECT_THAT(message(plain, 1.25), testing::HasSubstr("the model has none"));
  EXPECT_THAT(message(config, -1), testing::HasSubstr("must be a number from 0 on"));
  EXPECT_THAT(message(config, std::nan("")), testing::HasSubstr("must be a number from 0 on"));
}

}  // namespace
}  // namespace coda
