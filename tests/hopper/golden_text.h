// SPDX-License-Identifier: Apache-2.0
// Texts of kernels that are kept in tests/hopper/golden, so that a change of them is seen.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hopper/codegen/kernel_launch.h"

namespace coda::hopper {

// CODA_UPDATE_GOLDEN=1 writes the file anew: read the difference before it is committed.
inline void expect_golden(const std::string& file, const std::vector<KernelLaunch>& launches) {
  std::string now;
  for (const KernelLaunch& launch : launches) now += launch.source;
  const std::string path = std::string(CODA_SOURCE_DIR) + "/tests/hopper/golden/" + file;
  if (std::getenv("CODA_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream golden(path);
  ASSERT_TRUE(golden) << path << " is missing; CODA_UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(golden), {}), now)
      << "CODA_UPDATE_GOLDEN=1 writes the new text";
}

}  // namespace coda::hopper
