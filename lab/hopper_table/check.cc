// SPDX-License-Identifier: Apache-2.0
#include "lab/hopper_table/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "lab/hopper_table/support_kernels.h"

namespace coda::hopper_table {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr unsigned kPlanes = 3;
constexpr Band kBands[] = {{.length = 512}, {.length = 768, .columns = true}};

// One rounding to bf16 leaves 1.7e-3 of relative error over many elements, to fp16 0.2e-3; over a
// handful it may reach half a unit in the last place.
constexpr double kMaxError = 4e-3;

struct Size {
  unsigned m;
  unsigned n;
  unsigned k;
};

constexpr Size kSizes[] = {
    {256, 256, 128},    // one tile or two, fewer K blocks than stages
    {393, 331, 137},    // ragged in all three, K not a multiple of 8
    {1, 8, 8},          // less than anything
    {130, 2056, 1000},  // clusters that reach past the output
    {4224, 2944, 448},  // several waves, an odd number of tiles for many CTAs
};

}  // namespace

int check_variants(const Device& device, const NvrtcCompiler& compiler, const Support& support,
                   const std::vector<Variant>& variants, bool smallest) {
  std::vector<std::string> sources;
  for (const Variant& variant : variants) sources.push_back(kernel_source(variant));
  const std::vector<CompiledKernel> compiled = compiler.compile_all(sources);
  std::vector<LoadedKernel> kernels;
  int failures = 0;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (!compiled[i].defect.empty()) {
      std::printf("%s: %s\n%s\n", variants[i].name().c_str(), compiled[i].defect.c_str(),
                  compiled[i].log.c_str());
      return 1;
    }
    kernels.push_back(load_variant(device, variants[i], compiled[i].cubin));
  }
  const DevicePointer verdict_memory = device.allocate(sizeof(Verdict));

  int pairs = 0;
  double worst = 0;
  for (const Size& size : kSizes) {
    if (smallest && &size != &kSizes[0] && &size != &kSizes[1]) continue;
    for (const bool fp16 : {false, true}) {
      for (const device::OperandLayout layout :
           {device::OperandLayout::tn, device::OperandLayout::nn, device::OperandLayout::nt}) {
        const auto matches = [&](const Variant& variant) {
          return variant.config.layout == layout &&
                 (variant.config.element == device::Element::f16) == fp16;
        };
        if (std::none_of(variants.begin(), variants.end(), matches)) continue;
        const Shape shape{.m = size.m, .n = size.n, .k = size.k, .layout = layout, .fp16 = fp16};
        const Problem problem(device, support, shape, 1, kPlanes, kGuard);
        const TensorSet& set = problem.sets().front();
        const DevicePointer product = device.allocate(std::size_t{size.m} * size.n * 4);
        support.naive_gemm(shape, set, product);
        std::map<std::string, unsigned long long> checksums;
        for (std::size_t i = 0; i < variants.size(); ++i) {
          if (!matches(variants[i])) continue;
          ++pairs;
          problem.poison_outputs();
          prepare(device, kernels[i], variants[i], problem, kBands[i % 2])(0);
          bool good = true;
          for (unsigned plane = 0; plane < variants[i].shape.stores; ++plane) {
            device.fill_bytes(verdict_memory, 0, sizeof(Verdict));
            support.compare(shape, set, variants[i], plane, kGuard, product, verdict_memory);
            Verdict verdict;
            device.to_host(&verdict, verdict_memory, sizeof verdict);
            const double error = std::sqrt(verdict.error / verdict.magnitude);
            worst = std::max(worst, error);
            const std::string key =
                std::to_string(variants[i].shape.loads) + ":" + std::to_string(plane);
            const unsigned long long first = checksums.emplace(key, verdict.checksum).first->second;
            if (error < kMaxError && verdict.wrong == 0 && verdict.touched == 0 &&
                verdict.checksum == first) {
              continue;
            }
            good = false;
            std::printf("%s at %s, store %u: error %.2e, %llu wrong, %llu outside written, %s\n",
                        variants[i].name().c_str(), shape.name().c_str(), plane, error,
                        verdict.wrong, verdict.touched,
                        verdict.checksum == first ? "same bits" : "other bits than the first");
          }
          failures += good ? 0 : 1;
        }
        device.synchronize();
        device.free(product);
      }
    }
  }
  device.free(verdict_memory);
  std::printf("checked %zu kernels, %d runs, %d wrong, worst relative error %.2e\n",
              variants.size(), pairs, failures, worst);
  return failures;
}

}  // namespace coda::hopper_table
