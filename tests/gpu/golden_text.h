// SPDX-License-Identifier: Apache-2.0
// Texts of kernels that are kept in tests/gpu/golden.
#pragma once

#include <string>
#include <vector>

#include "base/golden.h"
#include "gpu/codegen/kernel_launch.h"

namespace coda::gpu {

inline void expect_golden(const std::string& file, const std::vector<KernelLaunch>& launches) {
  std::string now;
  for (const KernelLaunch& launch : launches) now += launch.source;
  coda::expect_golden("gpu/golden/" + file, now);
}

}  // namespace coda::gpu
