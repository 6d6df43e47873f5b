// SPDX-License-Identifier: Apache-2.0
// Which kernels are not compiled again, and what makes a kernel another one.
#include "gpu/clean_kernels.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace coda::gpu {
namespace {

TEST(CleanKernels, AreSkippedOnAllDaysButOneOfSixtyFour) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "clean_kernels";
  std::ofstream(file) << "00a3456789abcdef\n";
  const CleanKernels clean(file.string());
  int compiled = 0;
  for (int64_t day = 20000; day < 20000 + 3 * CleanKernels::kSampleDays; ++day) {
    compiled += clean.may_skip("00a3456789abcdef", day) ? 0 : 1;
    EXPECT_FALSE(clean.may_skip("00a3456789abcdee", day)) << "a kernel that is not in the file";
  }
  EXPECT_EQ(compiled, 3);
  EXPECT_EQ(clean.spilled_bytes("00a3456789abcdef"), 0);
  EXPECT_EQ(clean.spilled_bytes("00a3456789abcdee"), -1);
  std::ofstream(file) << "00a3456789abcdef 24\n";
  const CleanKernels spills(file.string());
  EXPECT_EQ(spills.spilled_bytes("00a3456789abcdef"), 24);
  EXPECT_FALSE(spills.may_skip("00a3456789abcdef", 20001)) << "a kernel that spills is not clean";
  std::filesystem::remove(file);
  EXPECT_FALSE(CleanKernels(file.string()).may_skip("00a3456789abcdef", 20001)) << "no file";
}

TEST(CleanKernels, AreKnownByTheirTextAndTheDeviceCodeThatItIncludes) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::string text = "#include \"device/a.cuh\"\n";
  const auto digest = [&](const std::string& source, const std::string& b, const std::string& c) {
    const NvrtcCompiler compiler(NvrtcCompiler::Headers{
        {"device/a.cuh", "#include \"device/b.cuh\"\n"}, {"device/b.cuh", b}, {"device/c.cuh", c}});
    return digest_of_kernel(compiler, source);
  };
  const std::string known = digest(text, "int b;", "int c;");
  EXPECT_EQ(known, digest(text, "int b;", "int other;")) << "it does not include c";
  EXPECT_NE(known, digest(text, "int other;", "int c;")) << "it includes b through a";
  EXPECT_NE(known, digest(text + "int a;", "int b;", "int c;"));
  EXPECT_EQ(known, digest(text + "  // a\n", "// b\nint b;  // b\n", "int c;")) << "comments";
}

}  // namespace
}  // namespace coda::gpu
