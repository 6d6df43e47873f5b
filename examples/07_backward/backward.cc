// SPDX-License-Identifier: Apache-2.0
// A backward by hand, and the one that is derived: y = silu(x · wᵀ) · vᵀ as a graph, whose gradient
// for x the compiler makes of the same programs. (`coda derive` writes such programs.)
#include "ladder.h"

namespace {

coda::Program forward() {
  coda::ProgramBuilder p("activation");
  const coda::TileValue z = p.gemm("x[M, K]", "w[N, K]");
  p.store("z", z);
  p.store("a", silu(z));
  return p.build();
}

coda::Program backward() {
  coda::ProgramBuilder p("activation_backward");
  const coda::TileValue da = p.gemm("dy[M, D]", "v[D, N]");
  const coda::TileValue z = p.load_tile("z[M, N]");
  const coda::TileValue s = sigmoid(z);
  p.store("dz", da * (s * (1.0 + z * (1.0 - s))));
  return p.build();
}

// dx from dy, by differentiation.
std::vector<float> derived(const coda::DimValues& sizes, const ladder::Values& values) {
  coda::Graph graph;
  const coda::Value x = graph.input("x", {"M", "K"});
  const coda::Value w = graph.input("w", {"N", "K"});
  const coda::Value v = graph.input("v", {"D", "N"});
  const coda::Value y = coda::linear(coda::silu(coda::linear(x, w)), v);
  coda::CompileRequest request;
  request.outputs = {{"y", y}};
  request.seeds = {{y, graph.input("dy", {"M", "D"})}};
  request.gradients = {{x, "dx"}};
  const auto cpu = coda::make_backend("cpu");
  coda::CompileOptions options;
  options.rates = cpu->rates();
  options.sizes = sizes;
  coda::Session session(coda::compile(graph, request, options).plan, *cpu, sizes);
  for (auto& [name, tensor] : session.allocate())
    if (values.contains(name)) tensor.set(values.at(name));
  session.forward();
  session.backward();
  return session.tensor("dx").floats();
}

}  // namespace

int main(int count, char** arguments) {
  return ladder::main(count, arguments, [](const auto& texts) {
    ladder::Programs programs{forward(), backward()};
    ladder::require_same(programs, texts);
    // The rest of the gradient is a bare product: dx = dz · w.
    coda::ProgramBuilder p("data_gradient");
    p.store("dx", p.gemm("dz[M, N]", "w[N, K]"));
    programs.push_back(p.build());

    const coda::DimValues sizes{{"M", 6}, {"N", 5}, {"K", 4}, {"D", 3}};
    ladder::Values values;
    ladder::run(programs, sizes, values);
    const std::vector<float> dx = derived(sizes, values);
    std::printf("dx[0, 0] = %g, derived %g\n", values["dx"][0], dx[0]);
    for (size_t i = 0; i < dx.size(); ++i)
      coda::require(std::abs(values["dx"][i] - dx[i]) < 1e-4, "the backward is wrong");
  });
}
