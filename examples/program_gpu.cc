// SPDX-License-Identifier: Apache-2.0
// A fused kernel of one's own: a product with what should happen to it while it is on the chip,
// written as a program. Here logits are capped, and what their log-sum-exp needs is reduced beside
// it. It runs on a GPU and on the CPU, and the results are compared. Where there is no GPU it says
// so.
#include <coda/coda.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

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

  const auto gpu = coda::make_backend("gpu");
  const auto cpu = coda::make_backend("cpu");
  coda::Session on_gpu(plan, *gpu, sizes);  // the kernel is compiled here, or found in the cache
  coda::Session on_cpu(plan, *cpu, sizes);
  on_gpu.allocate();
  on_cpu.allocate();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const char* name : {"h", "w"}) {
    std::vector<float> values(static_cast<size_t>(on_cpu.tensor(name).size()));
    for (float& v : values) v = normal(random);
    on_gpu.tensor(name).set(values);
    on_cpu.tensor(name).set(values);
  }
  on_gpu.forward();
  on_cpu.forward();

  // Both round to bf16, with 8 bits: they may differ in the last one.
  const std::vector<float> ours = on_gpu.tensor("y").floats();
  const std::vector<float> theirs = on_cpu.tensor("y").floats();
  size_t different = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    different += !(std::abs(ours[i] - theirs[i]) <= std::abs(theirs[i]) / 128 + 1e-3F);
  }
  std::printf("%s: y[0, 0] = %g; %zu of %zu elements differ from the CPU's\n",
              coda::describe_gpu().c_str(), ours[0], different, ours.size());
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
