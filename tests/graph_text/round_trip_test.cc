// SPDX-License-Identifier: Apache-2.0
// Graphs go through their text: what is parsed has the same nodes in the same order, without those
// that no output reads. Over all operations, random graphs and their backward, all models and
// theirs, before and after the passes.
#include <gtest/gtest.h>

#include <cmath>

#include "coda/error.h"
#include "coda/models.h"
#include "grad/differentiate.h"
#include "graph_text/all_ops.h"
#include "graph_text/graph_words.h"
#include "graph_text/same_graph.h"
#include "plan/random_graphs.h"
#include "rewrite/joint.h"

namespace coda {
namespace {

using tests::expect_round_trip;

// With the gradients of all inputs that have one.
void expect_backward_round_trip(Graph& graph, std::vector<NamedValue> outputs,
                                const std::vector<SeededOutput>& seeds) {
  std::vector<int> inputs;
  for (int id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    if (n.op == Op::input && n.kind != InputKind::table) inputs.push_back(id);
  }
  std::vector<Seed> given;
  for (const SeededOutput& seed : seeds) given.push_back({seed.output.id, seed.cotangent});
  const std::vector<Value> gradients = differentiate(graph, given, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].graph != nullptr)
      outputs.push_back({"grad_to_" + graph.node(inputs[i]).name, gradients[i]});
  }
  expect_round_trip(graph, outputs);
}

// As the passes leave it: forward and backward in one graph.
void expect_joint_round_trip(const Graph& graph, const CompileRequest& request,
                             const Choices& choices, const LayerStarts& starts = {}) {
  const JointGraph joint = rewrite_jointly(graph, request, choices, true, {}, {}, {}, starts);
  std::vector<NamedValue> outputs;
  for (const auto* roots : {&joint.outputs, &joint.gradients}) {
    for (const int root : *roots) {
      if (root >= 0)
        outputs.push_back({"y" + std::to_string(outputs.size()), joint.graph->value(root)});
    }
  }
  // Passes ask for a call's results one by one; the text has them all where the call stands.
  expect_round_trip(*joint.graph, outputs, false);
}

TEST(GraphText, HasAWordForEachOperation) {
  const NamedGraph all = tests::graph_of_all_ops();
  expect_round_trip(all.graph, all.outputs);
  std::vector<bool> has(kOpCount, false);
  for (const int id : tests::reached_nodes(all.graph, all.outputs))
    has[static_cast<size_t>(all.graph.node(id).op)] = true;
  for (int op = 0; op < kOpCount; ++op)
    EXPECT_TRUE(has[static_cast<size_t>(op)]) << "graph_of_all_ops lacks operation " << op;
  // And each word of the table stands in its text.
  const std::string printed = text(all);
  for (const graph_text::GraphWord& row : graph_text::graph_words())
    EXPECT_NE(printed.find(std::string(row.word) + "("), std::string::npos) << row.word;
}

TEST(GraphText, HoldsEveryElementwiseOperationAndReduction) {
  Graph g;
  std::vector<NamedValue> outputs;
  const Value x[3] = {g.input("a", {"M", "N"}), g.input("b", {"M", 1}), g.input("c", {1, "N"})};
  for (int op = 0; op < kElementwiseCount; ++op) {
    const auto fn = static_cast<Elementwise>(op);
    std::vector<Value> operands(x, x + info(fn).arity);
    outputs.push_back({std::string(info(fn).name), elementwise(fn, operands)});
  }
  for (int kind = 0; kind < kPartialKindCount; ++kind) {
    const auto reduction = static_cast<PartialKind>(kind);
    const std::string name(info(reduction).name);
    outputs.push_back({"rows_" + name, row_reduce(x[0], reduction)});
    outputs.push_back({"columns_" + name, col_reduce(x[0], reduction)});
  }
  expect_round_trip(g, outputs);
}

TEST(GraphText, HoldsNumbersBitForBit) {
  Graph g;
  const Value x = g.input("x", {"M", "N"});
  std::vector<NamedValue> outputs;
  for (const double number : {0.1, -0.0, 1e300, 5e-324, -2.5, 16777217.0, HUGE_VAL, -HUGE_VAL,
                              std::nan(""), -std::nan("")}) {
    outputs.push_back({"y" + std::to_string(outputs.size()), maximum(x, number)});
  }
  expect_round_trip(g, outputs);
}

TEST(GraphText, HoldsRandomGraphsAndTheirBackward) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    expect_round_trip(random.block.graph, random.block.request.outputs);
    const Choices choices{
        .column_factors = std::vector<ColumnFactor>(8, static_cast<ColumnFactor>(seed % 3)),
        .pinned = std::vector<bool>(8, seed % 2 == 0)};
    expect_joint_round_trip(random.block.graph, random.block.request, choices);
    expect_backward_round_trip(random.block.graph, random.block.request.outputs,
                               random.block.request.seeds);
    if (HasFailure()) return;
  }
}

std::vector<std::pair<std::string, ModelConfig>> all_kinds_of_models() {
  const LlamaConfig llama{
      .layers = 3, .hidden = 12, .heads = 4, .kv_heads = 2, .head_dim = 4, .mlp = 10, .vocab = 17};
  LlamaConfig unusual = llama;  // what Gemma, Qwen, OLMo and Phi have that LLaMA has not
  unusual.qkv_bias = unusual.output_bias = unusual.mlp_bias = unusual.joined = unusual.gelu = true;
  unusual.query_key_norm = QueryKeyNorm::head;
  unusual.norms = NormPlace::both;
  unusual.unit_offset_norms = unusual.scaled_embedding = unusual.tied = true;
  unusual.score_cap = unusual.logit_cap = 30;
  unusual.window = 3;
  unusual.windowed = {true, false, true};
  LlamaConfig experts = llama;
  experts.experts = Experts{.count = 4, .chosen = 2, .mlp = 6, .normalised = true};
  const Gpt2Config gpt2{
      .layers = 2, .hidden = 12, .heads = 3, .vocab = 17, .positions = 9, .mlp = 20};
  const GptNeoxConfig neox{
      .layers = 2, .hidden = 12, .heads = 3, .mlp = 20, .vocab = 17, .rotary_dim = 2};
  return {{"llama", llama},
          {"unusual", unusual},
          {"experts", experts},
          {"gpt2", gpt2},
          {"gpt_neox", neox}};
}

TEST(GraphText, HoldsAllModelsAndTheirBackward) {
  for (const auto& [name, config] : all_kinds_of_models()) {
    for (const int64_t expert_rows : {0, 64}) {
      if (expert_rows > 0 && name != "experts") continue;
      SCOPED_TRACE(name);
      auto model =
          build_model(config, {.storage = DType::bf16, .positions = 6, .expert_rows = expert_rows});
      Graph& g = model->graph;
      CompileRequest request;
      request.outputs = {
          {"logits", model->logits}, {"row_losses", model->row_losses}, {"loss", model->loss}};
      if (expert_rows > 0) request.outputs.push_back({"dropped", model->dropped});
      expect_round_trip(g, request.outputs);
      request.seeds = {{model->loss, g.input("scale", {1, 1})}};
      for (const ModelParameter& p : model->parameters)
        request.gradients.push_back({p.value, "grad_to_" + p.name});
      expect_joint_round_trip(g, request, {});
      expect_backward_round_trip(g, request.outputs, request.seeds);
    }
  }
}

// Reading makes a number where it first stands: in one expression, this one's 2 would be made
// before the exponential.
TEST(GraphText, ExpressionsMakeTheirNodesInOrder) {
  Graph g;
  const Value x = g.input("x", {"M", "N"});
  const Value y = g.input("y", {"M", "N"});
  const Value power = exp(y);
  const Value sum = power + x * 2.0;
  const std::vector<NamedValue> outputs = {{"z", less(2.0, sum)}};
  expect_round_trip(g, outputs);
  EXPECT_EQ(text(g, outputs), R"(graph graph {
  x = input(x[M, N])
  v = exp(input(y[M, N])) + x * 2
  z = less(2, v)
  store(z, z)
}
)");
}

// A recomputed layer has products although there are equal ones.
TEST(GraphText, HoldsRecomputedValues) {
  Graph g;
  const Value x = g.input("x", {"M", 8});
  const Value q = g.input("q", {"M", 8});
  Node again = g.node(linear(x, g.parameter("w", {8, 8})).id);
  again.which = 1;
  const Value second = g.value(g.intern(again));
  const Value mask = top_k_mask(q, 2);
  Node call = g.node(g.node(mask.id).operands[0]);
  call.which = 2;
  Node result = g.node(mask.id);
  result.operands = {g.intern(call)};
  const Value third = g.value(g.intern(result));
  const std::vector<NamedValue> outputs = {{"y", x * second}, {"mask", third + mask}};
  expect_round_trip(g, outputs);
  EXPECT_NE(text(g, outputs).find("again(again(top_k_mask(q"), std::string::npos)
      << text(g, outputs);
}

}  // namespace
}  // namespace coda
