// SPDX-License-Identifier: Apache-2.0
// A block forward and backward on a GPU: the same mathematics as in block.cc, stored in bf16, with
// tensors in the GPU's memory and everything on one stream. Where there is no GPU it says so.
#include <cstdio>
#include <exception>
#include <map>
#include <random>
#include <vector>

#include "coda/builders.h"
#include "coda/compile.h"
#include "coda/device.h"
#include "coda/float16.h"
#include "coda/session.h"
#include "hopper/hopper_backend.h"

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
  coda::CompileOptions options;
  options.rates = coda::h200_rates();
  options.storage = kStorage;
  options.sizes = {{"M", kTokens}};
  const coda::Compiled compiled = coda::compile(graph, request, options);

  // Kernels are compiled here, all at once, or found in the cache.
  const coda::Stream stream = coda::Stream::make();
  const auto backend = coda::hopper::make_hopper_backend();
  backend->use_stream(stream);
  coda::Session session(compiled.plan, *backend, options.sizes);
  std::printf("%s: %.1f MB saved for the backward, %.1f MB of temporaries\n",
              coda::describe_gpu().c_str(), static_cast<double>(session.saved_bytes()) * 1e-6,
              static_cast<double>(session.arena_bytes()) * 1e-6);

  std::map<std::string, coda::DeviceTensor> tensors;
  std::map<std::string, std::vector<uint16_t>> host;
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
    coda::DeviceTensor& device = tensors[tensor.decl.name];
    device = coda::DeviceTensor(tensor.decl.dtype, rows, cols, stream);
    if (tensor.role != coda::TensorRole::output) {
      std::vector<uint16_t>& values = host[tensor.decl.name];
      values.resize(static_cast<size_t>(rows * cols));
      for (uint16_t& v : values) v = coda::bf16_from_float(0.1F * normal(random));
      device.upload(coda::dense_view(values.data(), tensor.decl.dtype, rows, cols), stream);
    }
    session.bind(tensor.decl.name, device.view());
  }
  session.forward();
  session.backward();

  // Each in its own type: gradients may be fp32.
  for (const char* name : {"y", "dx"}) {
    coda::TensorView result = tensors.at(name).view();
    std::vector<char> bytes(static_cast<size_t>(result.size() * coda::size_of(result.dtype)));
    result.data = bytes.data();
    tensors.at(name).download(result, stream);
    const float first =
        result.dtype == kStorage
            ? coda::float_from_bf16(reinterpret_cast<const uint16_t*>(bytes.data())[0])
            : reinterpret_cast<const float*>(bytes.data())[0];
    std::printf("%s[0, 0] = %g\n", name, first);
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
