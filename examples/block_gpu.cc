// SPDX-License-Identifier: Apache-2.0
// A block forward and backward on a GPU: the same mathematics as in 08_block, stored in bf16, with
// tensors in the GPU's memory and everything on one stream. Where there is no GPU it says so.
#include <coda/coda.h>

#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int64_t kTokens = 4096;
constexpr int64_t kHidden = 1024;
constexpr int64_t kMlp = 2816;

void run() {
  constexpr coda::DType kStorage = coda::DType::bf16;
  coda::Graph graph;
  const coda::Value x = graph.input("x", {"M", kHidden}, kStorage);
  const coda::Value norm = graph.parameter("norm", {1, kHidden}, kStorage);
  const coda::Value gate = graph.parameter("gate", {kMlp, kHidden}, kStorage);
  const coda::Value up = graph.parameter("up", {kMlp, kHidden}, kStorage);
  const coda::Value down = graph.parameter("down", {kHidden, kMlp}, kStorage);
  const coda::Value h = coda::rms_norm(x, norm, 1e-5);
  const coda::Value y =
      x + coda::linear(coda::swiglu(coda::linear(h, gate), coda::linear(h, up)), down);

  // y, and the gradients of <dy, y> to everything.
  const coda::Value dy = graph.input("dy", {"M", kHidden}, kStorage);
  coda::CompileRequest request;
  request.outputs = {{"y", y}};
  request.seeds = {{y, dy}};
  request.gradients = {{x, "dx"}, {norm, "dnorm"}, {gate, "dgate"}, {up, "dup"}, {down, "ddown"}};
  const coda::Stream stream = coda::Stream::make();
  const auto backend = coda::make_backend("gpu");
  backend->use_stream(stream);
  coda::CompileOptions options;
  options.rates = backend->rates();
  options.storage = kStorage;
  options.sizes = {{"M", kTokens}};
  const coda::Compiled compiled = coda::compile(graph, request, options);

  // Kernels are compiled here, all at once, or found in the cache.
  coda::Session session(compiled.plan, *backend, options.sizes);
  std::printf("%s: %.1f MB saved for the backward, %.1f MB of temporaries\n",
              coda::describe_gpu().c_str(), static_cast<double>(session.saved_bytes()) * 1e-6,
              static_cast<double>(session.arena_bytes()) * 1e-6);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& [name, tensor] : session.allocate()) {  // in the GPU's memory
    std::vector<float> values(static_cast<size_t>(tensor.size()));
    for (float& v : values) v = 0.1F * normal(random);
    tensor.set(values);
  }
  session.forward();
  session.backward();
  for (const char* name : {"y", "dx"}) {
    std::printf("%s[0, 0] = %g\n", name, session.tensor(name).floats()[0]);
  }
}

}  // namespace

int main() {
  try {
    if (const std::string why = coda::why_no_gpu(); !why.empty()) {
      std::printf("no GPU: %s\n", why.c_str());
      return 0;
    }
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "block_gpu: %s\n", error.what());
    return 1;
  }
}
