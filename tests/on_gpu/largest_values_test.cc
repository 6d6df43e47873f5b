// SPDX-License-Identifier: Apache-2.0
// The gradient of a largest value on a GPU (cpu/largest_values.h). Needs one; skipped elsewhere.
#include "cpu/largest_values.h"

#include "coda/backend.h"
#include "on_gpu/on_gpu.h"
#include "on_gpu/plan_cases.h"

namespace coda::tests {
namespace {

using LargestValuesOnGpu = OnGpu;

Tensors run_on_gpu(const Plan& plan, const DimValues& sizes, const Values& inputs) {
  const Stream stream = Stream::make();
  const auto backend = make_backend("gpu");
  backend->use_stream(stream);
  Session session(plan, *backend, sizes);
  BoundTensors tensors(session, inputs, stream);
  tensors.poison_outputs();
  run_both_phases(session);
  return tensors.download();
}

TEST_F(LargestValuesOnGpu, HaveAllOfTheirGradient) {
  for (const largest_values::Source& source : largest_values::kSources) {
    for (const DType storage : {DType::bf16, DType::f16}) {
      for (const PartialKind kind : {PartialKind::max, PartialKind::abs_max}) {
        for (const bool of_rows : {true, false}) {
          SCOPED_TRACE(std::string(source.name) + " " + std::string(name_of(storage)) + " " +
                       std::string(info(kind).name) + (of_rows ? " of rows" : " of columns"));
          largest_values::expect_gradients(source, storage, Objective::memory, kind, of_rows,
                                           run_on_gpu);
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::tests
