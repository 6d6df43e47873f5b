// SPDX-License-Identifier: Apache-2.0
// Every program becomes kernels: those of the plans of random graphs of all builders, forward and
// gradients, stored in fp32 and in bf16.
// CODA_GRAPH_SEEDS=FIRST-LAST runs others; CODA_GRAPH_KERNELS=1 also compiles each distinct kernel.
#include "tests/plan/any_graph.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "gpu/clean_kernels.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/codegen/kernel_names.h"
#include "gpu/lower.h"

namespace coda::gpu {
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

// Products reduced along rows and columns by any kind; the kernels of the largest magnitude.
TEST(AnyGraph, ReductionsOfEveryKindBecomeKernels) {
  std::set<std::string> texts;
  for (int i = 0; i < kPartialKindCount; ++i) {
    const auto kind = static_cast<PartialKind>(i);
    SCOPED_TRACE(info(kind).name);
    Block b;
    b.storage = DType::bf16;
    reductions_of_product(b, kind);
    CompileOptions options;
    options.sizes = {{"M", 4096}};
    options.storage = b.storage;
    options.rates = h200_rates();
    for (const PlanStep& step : compile(b.graph, b.request, options).plan.forward) {
      const auto* program = std::get_if<Program>(&step.work);
      ASSERT_NE(program, nullptr);
      for (const KernelLaunch& launch : lower(without_names(*program), options.sizes, {})) {
        if (kind == PartialKind::abs_max) texts.insert(launch.source);
      }
    }
  }
  EXPECT_GT(texts.size(), 1U);
  expect_no_defects(texts);
}

}  // namespace
}  // namespace coda::gpu
