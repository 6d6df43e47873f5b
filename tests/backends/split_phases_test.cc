// SPDX-License-Identifier: Apache-2.0
// A plan split into its phases computes what the whole plan does, to the bit, and what is saved
// passes through the caller: also where a loop over row blocks begins gradients in the forward.
#include "coda/split_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coda/builders.h"
#include "coda/compile.h"
#include "coda/session.h"

namespace coda {
namespace {

const DimValues kSizes = {{"M", 200}};

// The head of a model behind its norm, and its loss.
Plan head_plan(int64_t loss_rows) {
  Graph graph;
  const Value x = graph.input("x", {"M", 32});
  const Value norm = graph.parameter("norm", {1, 32});
  const Value head = graph.parameter("head", {96, 32});
  const Value targets = graph.table("targets", {"M", 1}, DType::i32);
  const Value up = graph.input("up", {1, 1});
  const Value loss = cross_entropy(linear(rms_norm(x, norm, 1e-5), head), targets).mean;
  CompileRequest request;
  request.outputs = {{"loss", loss}};
  request.seeds = {{loss, up}};
  request.gradients = {{x, "dx"}, {norm, "dnorm"}, {head, "dhead"}};
  CompileOptions options;
  options.sizes = kSizes;
  options.loss_rows = loss_rows;
  return compile(graph, request, options).plan;
}

// Numbers that depend on the name and the place; targets are columns.
void fill(std::string_view name, Tensor& tensor) {
  if (tensor.dtype() == DType::i32) {
    std::vector<int32_t> values(static_cast<size_t>(tensor.size()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7 % 96);
    return tensor.set(values);
  }
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 37 + name.size() * 11) % 101) / 50 - 1;
  tensor.set(values);
}

void fill_inputs(const Plan& plan, TensorMap& tensors) {
  for (auto& [name, tensor] : tensors)
    if (plan.tensor(name).role != TensorRole::output) fill(name, tensor);
}

class SplitPhases : public testing::TestWithParam<int64_t> {};

TEST_P(SplitPhases, GiveTheBitsOfTheWholePlan) {
  const Plan plan = head_plan(GetParam());
  const auto backend = make_backend("cpu");
  Session whole(plan, *backend, kSizes);
  TensorMap expected = whole.allocate();
  fill_inputs(plan, expected);
  whole.forward();
  whole.backward();

  const SplitPlan split = split_phases(plan);
  EXPECT_TRUE(split.forward.backward.empty());
  EXPECT_TRUE(split.backward.backward.empty());
  Session forward(split.forward, *backend, kSizes);
  TensorMap tensors = forward.allocate();
  fill_inputs(split.forward, tensors);
  forward.forward();
  Session backward(split.backward, *backend, kSizes);
  backward.bind_known(tensors);
  TensorMap rest = backward.allocate();
  fill_inputs(split.backward, rest);
  for (const auto& [name, tensor] : rest)
    EXPECT_TRUE(expected.contains(name))
        << name << " is the plan's, and the forward has not made it";
  backward.forward();
  tensors.merge(rest);
  for (const char* name : {"loss", "dx", "dnorm", "dhead"})
    EXPECT_EQ(tensors.find(name)->second.floats(), expected.find(name)->second.floats()) << name;
}

INSTANTIATE_TEST_SUITE_P(LossRows, SplitPhases, testing::Values(0, 64));

}  // namespace
}  // namespace coda
