// SPDX-License-Identifier: Apache-2.0
// The graph of with_past(), given new tokens and the cached keys and values of earlier ones,
// computes the same rows as the original graph computes from all tokens.
#include "models/with_past.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "coda/builders.h"
#include "ir/evaluate_graph.h"

namespace coda {
namespace {

constexpr int64_t kTokens = 5, kPast = 3, kColumns = 8;

std::vector<double> numbers(int64_t count, double phase) {
  std::vector<double> made;
  for (int64_t i = 0; i < count; ++i)
    made.push_back(std::sin(1.3 * static_cast<double>(i) + phase));
  return made;
}

std::vector<double> rows_of(const std::vector<double>& all, int64_t first, int64_t last) {
  return {all.begin() + first * kColumns, all.begin() + last * kColumns};
}

// Two layers, so that each reads its own past.
TEST(WithPast, AttentionWithAndWithoutSinksGivesTheRowsOfTheWhole) {
  for (const bool has_sinks : {false, true}) {
    ModelGraph model;
    Graph& g = model.graph;
    const Value q = g.input("q", {"M", kColumns}), k = g.input("k", {"M", kColumns});
    AttentionOptions options{.heads = 2, .kv_heads = 2, .head_dim = 4, .sequence = "T"};
    if (has_sinks) options.sinks = g.input("sinks", {1, 2});
    const Value first = attention(q, k, k * 2.0, options);
    options.window = 2;
    model.logits = attention(first, q, first, options);
    Inputs inputs{{"q", numbers(kTokens * kColumns, 0)}, {"k", numbers(kTokens * kColumns, 1)}};
    if (has_sinks) inputs["sinks"] = {0.5, -1};
    std::vector<int> roots{model.logits.id};
    for (const NamedValue& named : keys_and_values(model)) roots.push_back(named.value.id);
    const auto whole = evaluate(g, roots, inputs, {{"M", kTokens}, {"T", kTokens}});
    ASSERT_EQ(whole.size(), 5u);

    const auto behind = with_past(model, DType::f32);
    Inputs newest{{"length", {double(kPast)}}};
    if (has_sinks) newest["sinks"] = inputs["sinks"];
    for (const char* name : {"q", "k"}) newest[name] = rows_of(inputs[name], kPast, kTokens);
    size_t place = 1;
    for (const char* layer : {"0", "1"})
      for (const char* kind : {"keys", "values"})
        newest[std::string("past_") + kind + "." + layer] =
            rows_of(whole[place++].data, 0, kPast + 1);  // one row more than there are
    const Matrix made = evaluate(behind->graph, {behind->logits.id}, newest,
                                 {{"M", kTokens - kPast}, {"P", kPast + 1}})[0];
    const std::vector<double> wanted = rows_of(whole[0].data, kPast, kTokens);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(made.data[i], wanted[i], 1e-12);
  }
}

}  // namespace
}  // namespace coda
