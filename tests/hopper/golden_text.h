// SPDX-License-Identifier: Apache-2.0
// Texts of kernels that are kept in tests/hopper/golden.
#pragma once

#include <string>
#include <vector>

#include "base/golden.h"
#include "hopper/codegen/kernel_launch.h"

namespace coda::hopper {

inline void expect_golden(const std::string& file, const std::vector<KernelLaunch>& launches) {
  std::string now;
  for (const KernelLaunch& launch : launches) now += launch.source;
  coda::expect_golden("hopper/golden/" + file, now);
}

}  // namespace coda::hopper
