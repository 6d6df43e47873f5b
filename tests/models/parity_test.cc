// SPDX-License-Identifier: Apache-2.0
// The graphs, run by the float64 reference, against transformers on PyTorch: logits, loss and every
// parameter's gradient from the same checkpoint.
#include <gtest/gtest.h>

#include "coda/models.h"
#include "grad/differentiate.h"
#include "ir/evaluate_graph.h"
#include "models/hf_case.h"
#include "models/hf_reference.h"
#include "models/model_data.h"

namespace coda {
namespace {

void expect_parity(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  const HfCase judge(folder);
  const int64_t tokens = judge.batch * judge.sequence;
  auto model = build_model(judge.config, {.positions = judge.sequence});

  Inputs inputs = fixed_inputs(*model, tokens, judge.sequence);
  for (const char* name : {"tokens", "targets"}) {
    const std::vector<int32_t> ids = judge.ids(name);
    inputs[name == std::string("tokens") ? "ids" : name].assign(ids.begin(), ids.end());
  }
  std::vector<int> wanted;
  for (const ModelParameter& p : model->parameters) {
    EXPECT_EQ(judge.weights.at(p.name).shape, p.shape) << p.name;
    inputs[p.name] = HfCase::floats_of(judge.weights.at(p.name));
    wanted.push_back(p.value.id);
  }
  std::vector<int> roots{model->logits.id, model->row_losses.id, model->loss.id};
  const Value one = model->graph.constant(1);
  for (const Value& g : differentiate(model->graph, {{model->loss.id, one}}, wanted)) {
    roots.push_back(g.id);
  }
  const DimValues sizes{{"M", tokens}, {"T", judge.sequence}};
  const auto results = evaluate(model->graph, roots, inputs, sizes);
  EXPECT_LT(relative_error(results[0].data, judge.floats("logits")), kParityTolerance);
  EXPECT_LT(relative_error(results[1].data, judge.floats("losses")), kParityTolerance);
  EXPECT_LT(relative_error(results[2].data, judge.floats("loss")), kParityTolerance);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = model->parameters[i].name;
    EXPECT_LT(relative_error(results[i + 3].data, judge.floats("grad." + name)), kParityTolerance)
        << name;
  }
}

TEST(Parity, GraphsGiveWhatTransformersGives) {
  std::string why;
  const auto folder = hf_reference(why);
  if (!folder) GTEST_SKIP() << why;
  const auto cases = hf_cases(*folder);
  EXPECT_EQ(cases.size(), 34u) << "the judge's cases";
  for (const auto& one : cases) expect_parity(one);
}

}  // namespace
}  // namespace coda
