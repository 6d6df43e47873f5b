// SPDX-License-Identifier: Apache-2.0
// The graphs, run by the float64 reference, against transformers on PyTorch: logits, loss and every
// parameter's gradient from the same checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "grad/differentiate.h"
#include "io/model_config.h"
#include "io/safetensors.h"
#include "ir/evaluate_graph.h"
#include "models/build_model.h"
#include "models/hf_reference.h"
#include "models/model_data.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;

std::vector<double> floats_of(const io::StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  io::read_floats(tensor, tensor.shape, values);
  return {values.begin(), values.end()};
}

std::vector<double> ids_of(const io::StoredTensor& tensor) {
  std::vector<int32_t> values(static_cast<size_t>(tensor.count()));
  io::read_exact(tensor, io::ElementType::i32, tensor.shape,
                 std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}

// Of a reference that is 0 (scores of a single token have no gradient): the size itself.
double relative_error(const std::vector<double>& ours, const std::vector<double>& theirs) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    difference += (ours[i] - theirs[i]) * (ours[i] - theirs[i]);
    size += theirs[i] * theirs[i];
  }
  return std::sqrt(size > 0 ? difference / size : difference);
}

void expect_parity(const fs::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  const io::StoredTensors reference = io::open_safetensors(folder / "reference.safetensors");
  const io::StoredTensors weights = io::open_model_weights(folder / "checkpoint");
  const int64_t sequence = reference.at("tokens").shape[1];
  const int64_t tokens = reference.at("tokens").count();
  auto model = build_model(io::read_model_config(folder / "checkpoint"), {.positions = sequence});

  Inputs inputs = fixed_inputs(*model, tokens, sequence);
  inputs["ids"] = ids_of(reference.at("tokens"));
  inputs["targets"] = ids_of(reference.at("targets"));
  std::vector<int> wanted;
  for (const ModelParameter& p : model->parameters) {
    EXPECT_EQ(weights.at(p.name).shape, p.shape) << p.name;
    inputs[p.name] = floats_of(weights.at(p.name));
    wanted.push_back(p.value.id);
  }
  std::vector<int> roots{model->logits.id, model->row_losses.id, model->loss.id};
  for (const Value& g :
       differentiate(model->graph, {{model->loss.id, model->graph.constant(1)}}, wanted)) {
    roots.push_back(g.id);
  }
  const auto results = evaluate(model->graph, roots, inputs, {{"M", tokens}, {"T", sequence}});
  EXPECT_LT(relative_error(results[0].data, floats_of(reference.at("logits"))), kTolerance);
  EXPECT_LT(relative_error(results[1].data, floats_of(reference.at("losses"))), kTolerance);
  EXPECT_LT(relative_error(results[2].data, floats_of(reference.at("loss"))), kTolerance);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = model->parameters[i].name;
    EXPECT_LT(relative_error(results[i + 3].data, floats_of(reference.at("grad." + name))),
              kTolerance)
        << name;
  }
}

TEST(Parity, GraphsGiveWhatTransformersGives) {
  std::string why;
  const auto folder = hf_reference(why);
  if (!folder) GTEST_SKIP() << why;
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(*folder)) {
    if (!fs::exists(entry.path() / "reference.safetensors")) continue;
    expect_parity(entry.path());
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

}  // namespace
}  // namespace coda
