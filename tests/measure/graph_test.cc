// SPDX-License-Identifier: Apache-2.0
// Graphs are checked as they should be: what is right passes, and a kernel or a gradient that is
// wrong by a hundredth shows.
#include <gtest/gtest.h>

#include "coda/error.h"
#include "coda/operation.h"
#include "coda/run_graph.h"

namespace coda {
namespace {

// x * 2, with a kernel and a gradient of one's own.
void register_double(const std::string& name, double of_kernel, double of_gradient) {
  Operation twice;
  twice.name = name;
  twice.operands = {"x"};
  twice.results = [](const OperationSettings&, const std::vector<Shape>& in) {
    return std::vector<OperationResult>{{in[0]}};
  };
  twice.evaluate = [](const OperationSettings&, const std::vector<Matrix>& in,
                      std::vector<Matrix>& out) {
    for (size_t i = 0; i < in[0].data.size(); ++i) out[0].data[i] = 2 * in[0].data[i];
  };
  twice.adjoint = [=](const OperationSettings&, const std::vector<Value>&,
                      const std::vector<Value>&, const std::vector<Value>& gradients) {
    return std::vector<Value>{gradients[0] * of_gradient};
  };
  twice.cpu = [=](const OperationCall&, int) -> CpuKernel {
    return [=](std::span<const TensorView> t) {
      const Tensor x(t[0]);
      std::vector<float> values = x.floats();
      for (float& v : values) v *= static_cast<float>(of_kernel);
      Tensor(t[1]).set(values);
    };
  };
  register_operation(std::move(twice));
}

NamedGraph graph_with(const std::string& operation) {
  return parse_graph("graph g {\n  x = input(x[M, 16])\n  y = " + operation +
                     "(gemm(x, parameter(w[16, 16]), nt)) + x\n  store(y, y)\n}\n");
}

TEST(CheckedGraph, WhatIsRightPasses) {
  register_double("twice", 2, 2);
  const NamedGraph graph = graph_with("twice");
  EXPECT_TRUE(check_graph(graph, {{"M", 70}}, {.backend = "cpu"}).is_right());
  const BackwardReport backward = check_backward(graph, {{"M", 5}});
  EXPECT_EQ(backward.left_out, "");
  EXPECT_EQ(backward.gradients.size(), 2U);
  EXPECT_TRUE(backward.is_right());
}

TEST(CheckedGraph, AWrongKernelShows) {
  register_double("nearly_twice", 2.02, 2);
  const CheckReport report =
      check_graph(graph_with("nearly_twice"), {{"M", 70}}, {.backend = "cpu"});
  ASSERT_EQ(report.backends.size(), 2U);
  EXPECT_TRUE(report.backends[0].is_right());  // the plan, by definitions
  EXPECT_FALSE(report.backends[1].is_right()) << text(report);
}

TEST(CheckedGraph, AWrongGradientShows) {
  register_double("twice_but_backward", 2, 2.02);
  const BackwardReport report = check_backward(graph_with("twice_but_backward"), {{"M", 5}});
  EXPECT_EQ(report.left_out, "");
  EXPECT_FALSE(report.is_right()) << text(report);
}

// In 16 bits the bound is that of their rounding.
TEST(CheckedGraph, TypesHaveTheirBounds) {
  const NamedGraph graph = parse_graph(
      "graph g {\n  h = gemm(input(x[M, 64]:bf16), parameter(w[96, 64]:bf16))\n"
      "  store(y:bf16, gemm(silu(h), parameter(v[64, 96]:bf16)))\n}\n");
  const CheckReport report = check_graph(graph, {{"M", 50}}, {.backend = "cpu"});
  EXPECT_TRUE(report.is_right()) << text(report);
  for (const CheckedBackend& backend : report.backends) {
    EXPECT_GT(backend.tensors.at(0).error, 1e-4);
    EXPECT_LT(backend.tensors.at(0).bound, 0.06);
  }
}

// Outputs that are inputs, numbers or one another's values; scalars, vectors, masks.
TEST(CheckedGraph, AllKindsOfInputsAndOutputsAreThere) {
  const NamedGraph graph = parse_graph(
      "graph g {\n  x = input(x[M, N])\n  s = input(s)\n  r = input(r[M, 1])\n"
      "  store(same, x)\n  store(number, 2)\n  store(scaled, x * s + r)\n"
      "  store(twin, x * s + r)\n  store(chosen, where(input(mask[M, N]:u8), x, 0))\n"
      "  store(index, column_index(N) * s)\n  store(sum, reduce_columns(sum(x)))\n"
      "  store(turned, transpose_vector(r))\n}\n");
  const CheckReport report = check_graph(graph, {{"M", 70}, {"N", 33}}, {.backend = "cpu"});
  EXPECT_TRUE(report.is_right()) << text(report);
  EXPECT_EQ(report.backends.at(1).tensors.size(), 8U);
  const BackwardReport backward = check_backward(graph, {{"M", 5}, {"N", 6}});
  EXPECT_EQ(backward.left_out, "");
  EXPECT_EQ(backward.gradients.size(), 3U);
  EXPECT_TRUE(backward.is_right());
}

// Indices stay inside of what they index, whatever reads them.
TEST(CheckedGraph, IndicesAreInside) {
  const NamedGraph graph = parse_graph(
      "graph g {\n  t = parameter(t[S, 8])\n  i = table(i[M, 1]:i32)\n"
      "  store(y, gather_rows(t, i) + embedding(parameter(e[S, 8]), i))\n}\n");
  EXPECT_TRUE(check_graph(graph, {{"M", 300}, {"S", 3}}, {.backend = "cpu"}).is_right());
  const auto backend = make_backend("reference");
  Arrays inputs{{"t", {{3, 8}, std::vector<double>(24, 1)}},
                {"e", {{3, 8}, std::vector<double>(24, 1)}},
                {"i", {{2}, {0, 3}}}};
  try {
    run_graph(graph, sizes_of_inputs(graph, inputs), inputs, *backend);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "input 'i' has the index 3, and 't' has 3 rows");
  }
  inputs["i"].values = {0, 2};
  EXPECT_EQ(run_graph(graph, sizes_of_inputs(graph, inputs), inputs, *backend).results.size(), 1U);
}

}  // namespace
}  // namespace coda
