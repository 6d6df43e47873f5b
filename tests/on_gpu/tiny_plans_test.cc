// SPDX-License-Identifier: Apache-2.0
// Small plans, forward and backward once, for compute-sanitizer: `compute-sanitizer --tool memcheck
// on_gpu_test --gtest_filter='TinyPlans.*'`, and racecheck, synccheck, initcheck. Nothing is
// initialised but inputs, so that reading what was not written shows. Attention is the plain
// kernel: of cuDNN's the sanitizer reports races and diverged barriers that are not ours to mend.
// Needs a GPU; skipped elsewhere.
#include "coda/backend.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"

namespace coda::tests {
namespace {

using TinyPlans = OnGpu;

// A few tiles and blocks of K, ragged in every dimension.
ModelSizes tiny_sizes() {
  return {.model = {.hidden = 136,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 64,
                    .mlp = 100,
                    .vocab = 67,
                    .sequence = 10},
          .tokens = 70};
}

void run_once(const PlanCase& plan_case) {
  const ModelSizes sizes = tiny_sizes();
  const DimValues dims = dims_of(sizes);
  Block b;
  const Plan plan = plan_of(plan_case, sizes, DType::bf16, b);
  const Values inputs = model_inputs(b, sizes, 3);
  const Stream stream = Stream::make();
  const auto backend = make_backend("gpu", {.attention = GpuAttention::plain});
  backend->use_stream(stream);
  Session session(plan, *backend, dims);
  BoundTensors tensors(session, inputs, stream);
  run_both_phases(session);
  expect_as_on_the_cpu(tensors.download(), plan, b, inputs, dims);
}

TEST_F(TinyPlans, LlamaBlock) {
  run_once({"llama_block", [](Block& b, const LlamaSizes& s) { llama_block(b, s); }});
}

TEST_F(TinyPlans, Gpt2OfOneBlock) {
  run_once({"gpt2_model", [](Block& b, const LlamaSizes& s) { gpt2_model(b, 1, s); }});
}

}  // namespace
}  // namespace coda::tests
