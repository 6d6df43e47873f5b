// SPDX-License-Identifier: Apache-2.0
// Kernels of a plan as text and in the cache, by the public functions, without a GPU.
#include "coda/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "coda/builders.h"
#include "coda/compile.h"
#include "gpu/nvrtc.h"
#include "io/temp_folder.h"

namespace coda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A norm, a product, and a call, for M rows.
Plan small_plan(const DimValues& sizes) {
  Graph graph;
  const Value table = graph.parameter("table", {50, 64}, DType::bf16);
  const Value ids = graph.table("ids", {"M", 1}, DType::i32);
  const Value norm = graph.parameter("norm", {1, 64});
  const Value w = graph.parameter("w", {128, 64}, DType::bf16);
  CompileRequest request;
  request.outputs = {{"y", linear(rms_norm(embedding(table, ids), norm, 1e-5), w)}};
  CompileOptions options;
  options.sizes = sizes;
  options.storage = DType::bf16;
  options.rates = h200_rates();
  return compile(graph, request, options).plan;
}

TEST(Kernels, AreEmittedOnceEachWithWhatALaunchNeeds) {
  const DimValues sizes = {{"M", 256}};
  const Plan plan = small_plan(sizes);
  const std::vector<KernelText> kernels = emit_kernels(plan, sizes);
  ASSERT_GE(kernels.size(), 2U);
  bool has_product = false;
  bool has_call = false;
  for (const KernelText& kernel : kernels) {
    EXPECT_THAT(kernel.source, HasSubstr("#include \"device/")) << kernel.program;
    EXPECT_GT(kernel.grid * kernel.threads, 0U);
    has_product = has_product || kernel.shared_bytes > 32768;
    has_call = has_call || kernel.program == "embedding";
  }
  EXPECT_TRUE(has_product);
  EXPECT_TRUE(has_call);
}

// Of a step with attention in 16 bits what cuDNN keeps is the most; in fp32 the library's own
// kernel runs, which keeps nothing, and what is left is passed on between kernels.
TEST(Kernels, TheirWorkspaceIsKnownAhead) {
  const DimValues sizes = {{"M", 4096}};
  const auto workspace = [&](DType storage, int64_t head_dim) {
    Graph graph;
    const auto parameter = [&](const char* name) {
      return graph.parameter(name, {256, 256}, storage);
    };
    const Value x = graph.input("x", {"M", 256}, storage);
    const AttentionOptions options{
        .heads = 256 / head_dim, .kv_heads = 256 / head_dim, .head_dim = head_dim, .sequence = "T"};
    const Value y = attention(linear(x, parameter("q")), linear(x, parameter("k")),
                              linear(x, parameter("v")), options);
    CompileRequest request;
    request.outputs = {{"y", y}};
    request.seeds = {{y, graph.input("dy", {"M", 256}, storage)}};
    request.gradients = {{graph.value(graph.find_input("q")), "dq"}};
    CompileOptions compiling;
    compiling.sizes = sizes;
    compiling.sizes["T"] = 1024;
    compiling.storage = storage;
    return gpu_workspace_bytes(compile(graph, request, compiling).plan, compiling.sizes);
  };
  const int64_t rows = int64_t{4096} * 8;
  EXPECT_EQ(workspace(DType::bf16, 32), 4 * rows + 4 * rows + rows * 1024 * 2);
  EXPECT_LT(workspace(DType::f32, 32), rows * 1024);
  // The library's own backward has the sums of dq in fp32.
  const int64_t sums = int64_t{4096} * 256 * 4;
  EXPECT_GT(workspace(DType::bf16, 64), sums);
  EXPECT_LT(workspace(DType::bf16, 64), sums + sums / 8);
}

TEST(Kernels, AreCompiledAheadAndThenFound) {
  if (!gpu::find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const TempFolder cache;
  setenv("CODA_CACHE_DIR", cache.path().c_str(), 1);
  const DimValues sizes = {{"M", 256}};
  const Plan plan = small_plan(sizes);
  const Precompiled first = precompile({{plan, sizes}});
  const Precompiled second = precompile({{plan, sizes}});
  unsetenv("CODA_CACHE_DIR");
  EXPECT_EQ(first.compiled, first.kernels);
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(second.kernels, first.kernels);
  EXPECT_THAT(first.defects, IsEmpty());
  EXPECT_THAT(first.compiler, HasSubstr("NVRTC"));
}

}  // namespace
}  // namespace coda
