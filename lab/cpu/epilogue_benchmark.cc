// SPDX-License-Identifier: Apache-2.0
// What epilogues cost: the programs of a LLaMA block beside the same GEMMs with a plain store. The
// difference of a pair of lines ("fused" and "plain") is the epilogue's own time.
#include <benchmark/benchmark.h>

#include "cpu/cpu_backend.h"
#include "lab/cpu/block_epilogues.h"

namespace coda::cpu {
namespace {

void run(benchmark::State& state, const BlockEpilogue& epilogue, DType type, const DimValues& sizes,
         bool fused) {
  const AllocatedProgram allocated(epilogue, type, !fused, sizes);
  const auto backend = make_cpu_backend({.threads = 1});
  const auto kernel = backend->prepare(allocated.program, sizes);
  for (auto _ : state) kernel->run(allocated.tensors);
}

}  // namespace
}  // namespace coda::cpu

int main(int argc, char** argv) {
  return coda::cpu::measure_epilogues(argc, argv, coda::cpu::run, "plain", "fused");
}
