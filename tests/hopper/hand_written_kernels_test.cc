// SPDX-License-Identifier: Apache-2.0
// Kernels written by hand against device/space.cuh, in the form that the emitter gives all of them:
// they compile without a spill, local memory or serialised wgmma. They use what spaces may have:
// several of them, parts, natural order, K segments, tile loads and stores, vectors, gathered
// tables, partials along rows and columns, additions at the memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "hopper/nvrtc.h"

namespace coda::hopper {
namespace {

TEST(HandWrittenKernels, CompileWithoutDefect) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(CODA_SOURCE_DIR "/tests/hopper/kernels")) {
    if (entry.path().extension() == ".cu") names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  ASSERT_GE(names.size(), 5U);
  std::vector<std::string> sources;
  for (const std::string& name : names) {
    std::ifstream file(name);
    sources.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const std::vector<CompiledKernel> kernels = compiler->compile_all(sources);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(kernels[i].defect, "") << names[i] << "\n" << kernels[i].log;
  }
}

}  // namespace
}  // namespace coda::hopper
