// SPDX-License-Identifier: Apache-2.0
// Programs that no kernel holds, as several: right, with the same bits for every tile of their
// products, and in a session whose kernels share one scratch memory, from a CUDA graph too. Needs a
// GPU; skipped elsewhere.
#include <gmock/gmock.h>

#include <set>
#include <tuple>

#include "gpu/configure/choose_config.h"
#include "gpu/gpu_backend.h"
#include "gpu/head_norm_block.h"
#include "gpu/launch/captured_graph.h"
#include "gpu/lower.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"
#include "on_gpu/program_check.h"

namespace coda::tests {
namespace {

constexpr const char* kSplitPrograms[] = {
    R"(program heads_of_512 {
  q = as_stored(gemm(x[M, K]:bf16, w[512*H, K]:bf16) * per_row(rstd[M]), bf16)
  store(q[M, 512*H]:bf16, q)
  store(n:bf16, q * repeat_group(rsqrt(reduce_group(q * q, 512) * 0.002 + 1e-6), 512))
})",
    R"(program in_fp32 {
  z = gemm(x[M, K], w[N, K]; u[K, M], v[K, N]) + per_row(b[M])
  store(y, silu(z) * gemm(h[M, K]:bf16, g[N, K]:f16))
  row_partial(sums, sum(z))
})",
    R"(program gated {
  a = gemm(x[M, K]:bf16, w[N, K]:bf16)
  b = gemm(z[M, K]:bf16, v[K, N]:bf16; u[M, K]:bf16, t[N, K]:bf16)
  store(y:bf16, silu(a) * b + tile(r[M, N]:bf16))
})",
    R"(program heads_of_96 {
  a, b = split_pairs(gemm(x[M, K]:bf16, w[96*H, K]:bf16), 96)
  store(rotated:bf16, merge_pairs(a * 0.75 - b * 0.5, b * 0.75 + a * 0.5, 96))
})",
    R"(program logits {
  l = as_stored(gemm(x[M, K]:bf16, w[N, K]:bf16), bf16)
  store(logits[M, N]:bf16, l)
  row_partial(rows, log_sum_exp(l))
  column_partial(columns, log_sum_exp(l))
})"};

using SplitPrograms = OnGpu;

TEST_F(SplitPrograms, AreRightWithTheSameBitsForEveryTile) {
  for (const DimValues& all : {DimValues{{"M", 392}, {"N", 520}, {"K", 200}, {"H", 5}},
                               DimValues{{"M", 77}, {"N", 131}, {"K", 65}, {"H", 3}}}) {
    uint64_t seed = 40;
    for (const char* program_text : kSplitPrograms) {
      const Program program = parse_program(program_text);
      const DimValues sizes = bind(program, all);
      const RowGaps gaps{.gap = 0, .multiple = 8};
      check(program, sizes, ++seed, gaps, kSinglePrecision);
      const Values inputs = random_inputs(program, sizes, seed);
      std::vector<std::pair<const Program*, gpu::LowerOptions>> kernels;
      std::set<std::tuple<uint32_t, uint32_t, device::Schedule>> seen;
      for (const gpu::GemmConfig& choice : gpu::legal_choices(program, sizes, {})) {
        if (!seen.insert({choice.tile_m, choice.tile_n, choice.schedule}).second) continue;
        gpu::LowerOptions options;
        options.choice = choice;
        kernels.emplace_back(&program, options);
      }
      compile_ahead(kernels, sizes, gaps);
      const Values chosen = run_on_gpu(program, sizes, inputs, gaps);
      for (const auto& [same, options] : kernels) {
        expect_same_bits(chosen, run_on_gpu(program, sizes, inputs, gaps, options),
                         program.name + " with " + gpu::text(*options.choice));
      }
    }
  }
}

// Forward and backward of a block with norms of heads, in 16 bits and in fp32: as on the CPU within
// what both round, and the same bits when a graph that captured them runs. Scratch has, in fp32,
// the products that are split off, and in 16 bits what attention's backward passes from one of its
// kernels to the next.
TEST_F(SplitPrograms, ShareTheScratchOfASession) {
  for (const DType storage : {DType::bf16, DType::f32}) {
    const ModelSizes sizes = even_sizes();
    const DimValues dims = dims_of(sizes);
    Block b;
    const Plan plan = plan_of({"head_norm_block", head_norm_block}, sizes, storage, b);
    const Values inputs = model_inputs(b, sizes, 3);
    const Stream stream = Stream::make();
    // cuDNN's attention has scratch of its own.
    const auto backend = make_backend("gpu", {.attention = GpuAttention::plain});
    backend->use_stream(stream);
    Session session(plan, *backend, dims, {.timing = false, .poison = true});
    EXPECT_GT(session.scratch_bytes(), 0U);
    BoundTensors tensors(session, inputs, stream);
    run_both_phases(session);
    const Tensors first = tensors.download();
    expect_as_on_the_cpu(first, plan, b, inputs, dims);

    const gpu::Context context;
    const gpu::Context::Scope scope(context);
    const gpu::CapturedGraph graph(stream.handle(), [&] { run_both_phases(session); });
    for (int i = 0; i < 2; ++i) {
      tensors.poison_outputs();
      graph.run(stream.handle());
      EXPECT_THAT(different(first, tensors.download()), ::testing::IsEmpty());
    }
  }
}

}  // namespace
}  // namespace coda::tests
