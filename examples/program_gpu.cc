// SPDX-License-Identifier: Apache-2.0
// A fused kernel of one's own: a product with what should happen to it while it is on the chip,
// written as a program. Here logits are capped, and what their log-sum-exp needs is reduced beside
// it. It runs on a GPU and on the CPU, and the results are compared. Where there is no GPU it says
// so.
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coda/device.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/plan.h"
#include "coda/session.h"
#include "cpu/cpu_backend.h"
#include "hopper/hopper_backend.h"

namespace {

constexpr const char* kProgram = R"(
program capped_logits {
  logits = gemm(h[M, D]:bf16, w[V, D]:bf16)
  capped = 30 * tanh(logits / 30)
  store(y:bf16, capped)
  row_partial(lse, log_sum_exp(capped))
}
)";

void run() {
  const coda::DimValues sizes = {{"M", 1000}, {"V", 4096}, {"D", 512}};
  const coda::Plan plan = coda::one_step_plan(coda::parse_program(kProgram));

  // Memory on the host, for both; the GPU's tensors are copies.
  const coda::Stream stream = coda::Stream::make();
  const auto gpu = coda::hopper::make_hopper_backend();
  gpu->use_stream(stream);
  const auto cpu = coda::cpu::make_cpu_backend();
  coda::Session on_gpu(plan, *gpu, sizes);  // the kernel is compiled here, or found in the cache
  coda::Session on_cpu(plan, *cpu, sizes);
  std::map<std::string, std::vector<char>> host;
  std::map<std::string, coda::DeviceTensor> device;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const coda::PlanTensor& tensor : plan.tensors) {
    const auto [rows, cols] = coda::physical_shape(tensor.decl, sizes);
    const coda::DType dtype = tensor.decl.dtype;
    std::vector<char>& bytes = host[tensor.decl.name];
    bytes.resize(static_cast<size_t>(rows * cols * coda::size_of(dtype)));
    const coda::TensorView view = coda::dense_view(bytes.data(), dtype, rows, cols);
    coda::DeviceTensor& copy = device[tensor.decl.name];
    copy = coda::DeviceTensor(dtype, rows, cols, stream);
    if (tensor.role == coda::TensorRole::input) {
      auto* const values = reinterpret_cast<uint16_t*>(bytes.data());
      for (int64_t i = 0; i < view.size(); ++i) values[i] = coda::bf16_from_float(normal(random));
      copy.upload(view, stream);
    }
    on_gpu.bind(tensor.decl.name, copy.view());
    on_cpu.bind(tensor.decl.name, view);
  }
  on_gpu.forward();
  on_cpu.forward();

  // Both round to bf16, with 8 bits: they may differ in the last one.
  const std::vector<char>& expected = host["y"];
  std::vector<char> bytes(expected.size());
  device["y"].download(
      coda::dense_view(bytes.data(), coda::DType::bf16, sizes.at("M"), sizes.at("V")), stream);
  const auto* const ours = reinterpret_cast<const uint16_t*>(bytes.data());
  const auto* const theirs = reinterpret_cast<const uint16_t*>(expected.data());
  size_t different = 0;
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const float a = coda::float_from_bf16(ours[i]);
    const float b = coda::float_from_bf16(theirs[i]);
    different += !(std::abs(a - b) <= std::abs(b) / 128 + 1e-3F);
  }
  std::printf("%s: y[0, 0] = %g; %zu of %zu elements differ from the CPU's\n",
              coda::describe_gpu().c_str(), coda::float_from_bf16(ours[0]), different,
              bytes.size() / 2);
  coda::require(different == 0, "the GPU and the CPU disagree");
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
    std::fprintf(stderr, "program_gpu: %s\n", error.what());
    return 1;
  }
}
