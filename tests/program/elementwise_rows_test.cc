// SPDX-License-Identifier: Apache-2.0
// Every row of the table of elementwise operations has all that it needs to stand in a program: its
// name in the text, its body, and, as a graph, its expansion, which is the same function.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "coda/lift.h"
#include "coda/program.h"
#include "ir/evaluate_graph.h"
#include "program/evaluate.h"

namespace coda::program {
namespace {

TEST(ElementwiseRows, ARowIsWrittenParsedRunAndLifted) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(0.25, 3);
  TensorValues inputs;
  for (const char* name : {"a", "b", "c"}) {
    std::vector<double>& data = inputs[name];
    data.resize(3 * 64);
    for (double& x : data) x = static_cast<float>(uniform(random));
  }
  inputs["a"][7] = 0;  // select takes its other side
  for (int k = 0; k < kElementwiseCount; ++k) {
    const ElementwiseInfo& row = info(static_cast<Elementwise>(k));
    SCOPED_TRACE(std::string(row.name));
    std::string call = std::string(row.name) + "(tile(a[M, N])";
    if (row.arity > 1) call += ", tile(b[M, N])";
    if (row.arity > 2) call += ", tile(c[M, N])";
    const Program program =
        parse_program("program row {\n  x = " + call + ")\n  store(out[M, N]:f32, x)\n}\n");
    EXPECT_EQ(parse_program(text(program)), program) << text(program);

    const DimValues sizes{{"M", 3}, {"N", 64}};
    const std::vector<double> out = evaluate(program, sizes, inputs).at("out");
    Graph graph;
    LiftedTensors lifted;
    lift(program, graph, lifted);
    const Matrix as_graph =
        coda::evaluate(graph, {lifted.values.at("out").id}, inputs, sizes).at(0);
    for (size_t i = 0; i < out.size(); ++i) {
      const double body = row.evaluate(inputs["a"][i], inputs["b"][i], inputs["c"][i]);
      if (std::isinf(body)) continue;
      EXPECT_DOUBLE_EQ(out[i], body);
      EXPECT_NEAR(as_graph.data[i], body, 1e-14 * (1 + std::abs(body)));
    }
  }
}

}  // namespace
}  // namespace coda::program
