// SPDX-License-Identifier: Apache-2.0
// Texts that were read and found good, kept so that a change of them is seen.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace coda {

// `file` as of tests/. CODA_UPDATE_GOLDEN=1 writes it anew: read the difference before it is
// committed.
inline void expect_golden(const std::string& file, const std::string& now) {
  const std::string path = std::string(CODA_SOURCE_DIR) + "/tests/" + file;
  if (std::getenv("CODA_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream golden(path);
  ASSERT_TRUE(golden) << path << " is missing; CODA_UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(golden), {}), now)
      << "CODA_UPDATE_GOLDEN=1 writes the new text";
}

}  // namespace coda
