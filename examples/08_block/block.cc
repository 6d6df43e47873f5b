// SPDX-License-Identifier: Apache-2.0
// A block as plain mathematics, x + swiglu(norm(x)·Wgᵀ, norm(x)·Wuᵀ)·Wdᵀ: compiled with its
// gradients, printed, and run on the CPU. The programs that one would write by hand compute the
// same.
#include "ladder.h"

namespace {

constexpr int64_t kTokens = 512;
constexpr int64_t kHidden = 192;
constexpr int64_t kMlp = 512;

void run(const std::vector<std::string>& texts) {
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
  const auto backend = coda::make_backend("cpu");
  coda::CompileOptions options;
  options.rates = backend->rates();
  options.sizes = {{"M", kTokens}};
  const coda::Compiled compiled = coda::compile(graph, request, options);
  std::printf("%s\n", coda::text(compiled.plan, options.sizes, options.rates).c_str());

  // Inputs, parameters and outputs are bound by name; here the session makes them all.
  coda::Session session(compiled.plan, *backend, options.sizes);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& [name, tensor] : session.allocate()) {
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    for (float& v : values) v = 0.1F * normal(random);
    tensor.set(values);
  }
  session.forward();
  session.backward();
  for (const char* name : {"y", "dx", "dgate"}) {
    std::printf("%s[0, 0] = %g\n", name, session.tensor(name).floats()[0]);
  }

  ladder::Programs by_hand;
  for (const std::string& file : texts) by_hand.push_back(coda::read_program(file));
  ladder::Values values{{"inv_d", {1.0F / kHidden}}};
  for (const char* name : {"x", "norm", "gate", "up", "down"})
    values[name] = session.tensor(name).floats();
  ladder::run(by_hand, {{"M", kTokens}, {"D", kHidden}, {"I", kMlp}}, values);
  const std::vector<float> y_of_session = session.tensor("y").floats();
  for (size_t i = 0; i < y_of_session.size(); ++i)
    coda::require(std::abs(values["y"][i] - y_of_session[i]) < 1e-4, "by hand y is another");
}

}  // namespace

int main(int count, char** arguments) { return ladder::main(count, arguments, run); }
