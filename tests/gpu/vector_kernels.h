// SPDX-License-Identifier: Apache-2.0
// What tests of the emitters of kernels without products share: the compilation of all kernels that
// plans need.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gpu/clean_kernels.h"
#include "gpu/codegen/kernel_launch.h"
#include "gpu/golden_text.h"
#include "gpu/lower.h"
#include "gpu/vector_programs.h"

namespace coda::gpu {

// The kernels of all programs of this role, in bf16, fp16 and fp32, have no defect.
inline void expect_compile(StepRole role) {
  const LlamaSizes sizes{.hidden = 4096,
                         .heads = 32,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .mlp = 11008,
                         .vocab = 128256,
                         .sequence = 4096};
  std::set<std::string> sources;
  for (const DType storage : {DType::bf16, DType::f16, DType::f32}) {
    for (const PlanProgram& p : plan_programs(storage, sizes, 16384)) {
      if (p.role != role) continue;
      for (const KernelLaunch& launch : lower(p.program, p.sizes, {})) {
        sources.insert(launch.source);
      }
    }
  }
  expect_no_defects(sources);
}

}  // namespace coda::gpu
