// SPDX-License-Identifier: Apache-2.0
// An operation that a program registers goes through the compiler as those of the library do: the
// plan runs on the CPU, forward and backward, and gives what the float64 reference gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/relative_error.h"
#include "coda/builders.h"
#include "coda/error.h"
#include "cpu/plan_run.h"
#include "operations/causal_convolution.h"
#include "plan/plain_graph.h"

namespace coda {
namespace {

std::vector<double> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<double> values(count);
  for (double& v : values) v = static_cast<float>(normal(random));
  return values;
}

// out = silu(conv(x a)) + conv(conv(conv(x a))): one weight is used three times, so its gradient is
// a sum of calls, each of which adds to the one before; the first adds to what the caller has. No
// program passes over the weight's gradient.
TEST(OwnOperation, RunsForwardAndBackwardAsItsDefinitionSays) {
  tests::register_causal_convolution();
  for (bool accumulate : {false, true}) {
    Graph g;
    const Value x = g.input("x", {"M", 12}), dy = g.input("dy", {"M", 20});
    const Value a = g.parameter("a", {20, 12}), w = g.parameter("w", {4, 20});
    const auto conv = [&](Value v) {
      return opaque_call("causal_convolution", {v, w}, {}, {{"sequence", "T"}})[0];
    };
    const Value h = conv(linear(x, a));
    const Value out = silu(h) + conv(conv(h));
    CompileRequest request;
    request.outputs = {{"out", out}};
    request.seeds = {{out, dy}};
    request.gradients = {{x, "dx"}, {a, "da"}, {w, "dw", DType::f32, accumulate}};
    const DimValues sizes{{"M", 66}, {"T", 11}};
    CompileOptions options;
    options.sizes = sizes;
    const Plan plan = compile(g, request, options).plan;
    int adding = 0;
    for (const PlanStep& step : plan.backward) {
      const auto* call = std::get_if<OpaqueCall>(&step.work);
      adding += call != nullptr && call->function == "causal_convolution_weights" &&
                call->inputs.size() == 3;
      if (call != nullptr) continue;
      for (const TensorDecl& t : std::get<Program>(step.work).tensors)
        EXPECT_NE(t.shape, (Shape{4, 20})) << step.name << " passes over " << t.name;
    }
    EXPECT_EQ(adding, accumulate ? 3 : 2) << "calls that add";
    Values inputs{{"x", random_values(66 * 12, 1)},
                  {"dy", random_values(66 * 20, 2)},
                  {"a", random_values(20 * 12, 3)},
                  {"w", random_values(4 * 20, 4)}};
    const Values expected = plain_values(g, request, inputs, sizes);
    const std::vector<double> before = random_values(4 * 20, 5);
    if (accumulate) inputs["dw"] = before;
    const Tensors got = run(plan, sizes, inputs, 2);
    for (const auto& [name, values] : expected) {
      std::vector<double> want = values;
      if (accumulate && name == "dw")
        for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
      EXPECT_LT(relative_error(got.get(name), want), 1e-6) << name;
    }
  }
}

TEST(OwnOperation, WithoutAKernelOrAnAdjointThePlanIsRefusedWithTheReason) {
  Operation o = tests::causal_convolution();
  o.name = "reference_only";
  o.cpu = nullptr;
  o.adjoint = nullptr;
  register_operation(o);
  Graph g;
  const Value x = g.input("x", {"M", 4}), w = g.parameter("w", {2, 4});
  const Value y = opaque_call("reference_only", {x, w}, {}, {{"sequence", "M"}})[0];
  const DimValues sizes{{"M", 8}};
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  CompileRequest request;
  request.outputs = {{"y", y}};
  CompileOptions options;
  options.sizes = sizes;
  const Plan plan = compile(g, request, options).plan;
  const Values inputs{{"x", random_values(32, 1)}, {"w", random_values(8, 2)}};
  EXPECT_THAT(message_of([&] { run(plan, sizes, inputs, 1); }),
              ::testing::HasSubstr("reference_only: the operation has no kernel for the CPU"));
  request.seeds = {{y, g.input("dy", {"M", 4})}};
  request.gradients = {{x, "dx"}};
  EXPECT_THAT(message_of([&] { compile(g, request, options); }),
              ::testing::HasSubstr("\"reference_only\" has no adjoint"));
}

}  // namespace
}  // namespace coda
