// SPDX-License-Identifier: Apache-2.0
// Compares the text of a kernel with a file of tests/gpu/golden.
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
