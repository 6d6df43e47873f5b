// SPDX-License-Identifier: Apache-2.0
// Every program becomes kernels: those of the plans of random graphs of all builders, forward and
// gradients, stored in fp32 and in bf16.
// CODA_GRAPH_SEEDS=FIRST-LAST runs others; CODA_GRAPH_KERNELS=1 also compiles each distinct kernel.
#include "tests/plan/any_graph.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "hopper/clean_kernels.h"
#include "hopper/codegen/kernel_launch.h"
#include "hopper/codegen/kernel_names.h"
#include "hopper/lower.h"

namespace coda::hopper {
namespace {

TEST(AnyGraph, EveryProgramOfAPlanBecomesKernels) {
  std::set<std::string> texts;
  for (const uint64_t seed : seeds_of_any_graphs()) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    AnyGraph any(seed);
    CompileOptions options;
    options.sizes = any.sizes();
    options.storage = seed % 2 == 0 ? DType::f32 : DType::bf16;
    options.rates = h200_rates();
    Plan plan;
    try {
      plan = compile(any.block.graph, any.block.request, options).plan;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    for (const auto* phase : {&plan.forward, &plan.backward}) {
      for (const PlanStep& step : *phase) {
        const auto* program = std::get_if<Program>(&step.work);
        if (program == nullptr) continue;
        try {
          for (const KernelLaunch& launch : lower(without_names(*program), options.sizes, {}))
            texts.insert(launch.source.substr(launch.source.find("#include")));
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what() << "\n" << text(*program);
        }
      }
    }
  }
  std::printf("%zu texts\n", texts.size());
  if (std::getenv("CODA_GRAPH_KERNELS") != nullptr) expect_no_defects(texts);
}

}  // namespace
}  // namespace coda::hopper
