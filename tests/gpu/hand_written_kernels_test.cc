// SPDX-License-Identifier: Apache-2.0
// Kernels written by hand against device/layout/space.cuh, in the form that the emitter gives all
// of them: they compile without a spill, local memory or serialised wgmma. They use what spaces may
// have: several of them, parts, natural order, K segments, tile loads and stores, vectors, gathered
// tables, partials along rows and columns, additions at the memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gpu/clean_kernels.h"

namespace coda::gpu {
namespace {

TEST(HandWrittenKernels, CompileWithoutDefect) {
  std::set<std::string> sources;
  for (const auto& entry :
       std::filesystem::directory_iterator(CODA_SOURCE_DIR "/tests/gpu/kernels")) {
    if (entry.path().extension() != ".cu") continue;
    std::ifstream file(entry.path());
    sources.emplace(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  ASSERT_GE(sources.size(), 5U);
  expect_no_defects(sources);
}

}  // namespace
}  // namespace coda::gpu
