// SPDX-License-Identifier: Apache-2.0
// A block as plain mathematics, x + swiglu(norm(x)·Wgᵀ, norm(x)·Wuᵀ)·Wdᵀ: compiled with its
// gradients, printed, and run on the CPU.
#include <cstdio>
#include <exception>
#include <map>
#include <random>
#include <vector>

#include "coda/builders.h"
#include "coda/compile.h"
#include "coda/session.h"
#include "cpu/cpu_backend.h"

namespace {

constexpr int64_t kTokens = 512;
constexpr int64_t kHidden = 192;
constexpr int64_t kMlp = 512;

void run() {
  coda::Graph graph;
  const coda::Value x = graph.input("x", {"M", kHidden});
  const coda::Value norm = graph.parameter("norm", {1, kHidden});
  const coda::Value gate = graph.parameter("gate", {kMlp, kHidden});
  const coda::Value up = graph.parameter("up", {kMlp, kHidden});
  const coda::Value down = graph.parameter("down", {kHidden, kMlp});
  const coda::Value h = coda::rms_norm(x, norm, 1e-5);
  const coda::Value y =
      x + coda::linear(coda::swiglu(coda::linear(h, gate), coda::linear(h, up)), down);

  // What is asked: y, and the gradients of <dy, y> to everything.
  const coda::Value dy = graph.input("dy", {"M", kHidden});
  coda::CompileRequest request;
  request.outputs = {{"y", y}};
  request.seeds = {{y, dy}};
  request.gradients = {{x, "dx"}, {norm, "dnorm"}, {gate, "dgate"}, {up, "dup"}, {down, "ddown"}};
  coda::CompileOptions options;
  options.rates = coda::cpu_rates();
  options.sizes = {{"M", kTokens}};
  const coda::Compiled compiled = coda::compile(graph, request, options);
  std::printf("%s\n", coda::text(compiled.plan, options.sizes, options.rates).c_str());

  // Inputs, parameters and outputs are the caller's memory, bound by name.
  const auto backend = coda::cpu::make_cpu_backend();
  coda::Session session(compiled.plan, *backend, options.sizes);
  std::map<std::string, std::vector<float>> memory;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const coda::PlanTensor& tensor : session.plan().tensors) {
    if (!tensor.view_of.empty()) continue;  // lies in another one
    const bool is_ours = tensor.role == coda::TensorRole::input ||
                         tensor.role == coda::TensorRole::parameter ||
                         tensor.role == coda::TensorRole::output;
    if (!is_ours) continue;
    const int64_t rows = tensor.decl.shape.rows.evaluate(options.sizes);
    const int64_t cols = tensor.decl.shape.cols.evaluate(options.sizes);
    std::vector<float>& values = memory[tensor.decl.name];
    values.resize(static_cast<size_t>(rows * cols));
    for (float& v : values) v = 0.1F * normal(random);
    session.bind(tensor.decl.name, coda::dense_view(values.data(), coda::DType::f32, rows, cols));
  }
  session.forward();
  session.backward();
  std::printf("y[0, 0] = %g, dx[0, 0] = %g, dgate[0, 0] = %g\n", memory["y"][0], memory["dx"][0],
              memory["dgate"][0]);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "block: %s\n", error.what());
    return 1;
  }
}
