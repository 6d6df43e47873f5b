// SPDX-License-Identifier: Apache-2.0
// What the block benchmark compares must compute the same: the plan that runs the block one
// framework operation at a time, the fused and the unfused plan, each against the graph in float64
// from the same rounded inputs, forward and all gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "bench/llama_block/op_by_op.h"
#include "cpu/plan_run.h"

namespace coda {
namespace {

class BenchmarkedBlock : public testing::TestWithParam<DType> {};

// Root mean square of the error over that of the value. A result passes some ten roundings to the
// storage type, of at most half a unit each; a plan that computes something else errs by its whole
// size.
double bound_of(DType type) { return type == DType::bf16 ? 20 * 0x1p-9 : 20 * 0x1p-24; }

TEST_P(BenchmarkedBlock, PlansThatAreComparedComputeTheSame) {
  const DType type = GetParam();
  // Three heads of 64, one for keys and values; ragged rows, and no width a multiple of a tile's.
  const bench::BlockSize size = bench::block_size(70, 192, 300);
  const DimValues sizes{{"M", size.tokens}};
  for (const bool backward : {false, true}) {
    Block b;
    b.storage = type;
    b.request = bench::add_block(b.graph, size, type, backward);
    const Values inputs = realistic_inputs(b, sizes, 7, size.tokens);
    const Values expected = plain_values(b.graph, b.request, inputs, sizes);
    EXPECT_EQ(expected.size(), backward ? 15U : 4U);  // x2, q, k, v; gradients of 11 inputs
    const auto compiled = [&](bool fuse) {
      CompileOptions options;
      options.sizes = sizes;
      options.storage = type;
      options.rates = cpu_rates();
      options.fuse = fuse;
      return compile(b.graph, b.request, options).plan;
    };
    std::map<std::string, Plan> plans;
    plans["op by op"] = bench::op_by_op_plan(size, type, backward, sizes);
    plans["fused"] = compiled(true);
    plans["unfused"] = compiled(false);
    EXPECT_GT(plans["op by op"].forward.size(), plans["fused"].forward.size());
    for (const auto& [name, plan] : plans) {
      const Tensors results = run(plan, sizes, inputs, 2);
      for (const auto& [tensor, value] : expected) {
        EXPECT_LT(std::sqrt(squared_error(results.get(tensor), value)), bound_of(type))
            << name << ", " << tensor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Storage, BenchmarkedBlock, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace coda
