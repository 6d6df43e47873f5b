// SPDX-License-Identifier: Apache-2.0
// Runs a check once for each instruction set that vector code was compiled for and this processor
// has: Highway is told to support no better one.
#pragma once

#include <gtest/gtest.h>

#include "hwy/targets.h"

namespace coda::cpu {

template <class Check>
void for_each_instruction_set(const Check& check) {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_SCALAR}}) {
    if (target != HWY_SCALAR && (supported & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace coda::cpu
