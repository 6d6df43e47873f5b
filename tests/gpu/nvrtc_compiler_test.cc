// SPDX-License-Identifier: Apache-2.0
// The embedded device code compiles file by file with NVRTC, and what the assembler says against a
// kernel is seen.
#include "gpu/jit/nvrtc_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "gpu/jit/device_texts.h"
#include "gpu/nvrtc.h"

namespace coda::gpu {
namespace {

using ::testing::HasSubstr;

TEST(DeviceTexts, AreTheFilesOfTheSourceTree) {
  ASSERT_FALSE(device_texts().empty());
  std::string previous;
  for (const EmbeddedText& text : device_texts()) {
    std::ifstream file(std::string(CODA_SOURCE_DIR) + "/" + std::string(text.name));
    EXPECT_EQ(text.text, std::string(std::istreambuf_iterator<char>(file), {})) << text.name;
    EXPECT_LT(previous, text.name);
    previous = text.name;
  }
}

TEST(NvrtcCompiler, MakesACubinThatUsesDeviceCode) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  EXPECT_GE(compiler->version(), kOldestNvrtc);
  const CompiledKernel kernel = compiler->compile(R"(
#include "device/layout/tile_order.cuh"
extern "C" __global__ void kernel(unsigned* out) {
  out[threadIdx.x] = coda::device::ceil_div(7, 2);
}
)");
  EXPECT_EQ(kernel.defect, "") << kernel.log;
  ASSERT_GT(kernel.cubin.size(), 4U);
  EXPECT_EQ(std::memcmp(kernel.cubin.data(),
                        "\x7f"
                        "ELF",
                        4),
            0);
  EXPECT_GT(kernel.registers, 0);
}

// NVRTC keeps what it has compiled, for a text that differs in nothing but a comment too.
TEST(NvrtcCompiler, SeesLocalMemoryOfAKernelThatWasCompiledBefore) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  for (const char* comment : {"// first\n", "// second\n", "// third\n"}) {
    const CompiledKernel kernel = compiler->compile(std::string(comment) + R"(
extern "C" __global__ void kernel(float* x, int n) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = x[i * 5];
  for (int i = 0; i < n; ++i) values[i * 7 % 64] += x[i];
  for (int i = 0; i < 64; ++i) x[i] = values[i];
}
)");
    EXPECT_EQ(kernel.defect, "local memory is used") << comment << kernel.log;
    EXPECT_GT(kernel.registers, 0) << comment;
  }
}

TEST(NvrtcCompiler, SeesLocalMemory) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  const CompiledKernel kernel = compiler->compile(R"(
extern "C" __global__ void kernel(float* x, int n) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = x[i * 3];
  for (int i = 0; i < n; ++i) values[i * 7 % 64] += x[i];
  for (int i = 0; i < 64; ++i) x[i] = values[i];
})");
  EXPECT_EQ(kernel.defect, "local memory is used") << kernel.log;
  EXPECT_FALSE(kernel.cubin.empty());
}

TEST(NvrtcCompiler, AMistakeInTheTextIsADefectWithTheCompilersLog) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  const CompiledKernel kernel = compiler->compile("__global__ void kernel() { nothing(); }");
  EXPECT_EQ(kernel.defect, "does not compile");
  EXPECT_TRUE(kernel.cubin.empty());
  EXPECT_THAT(kernel.log, HasSubstr("identifier \"nothing\" is undefined"));
}

TEST(NvrtcCompiler, CompilesInParallelInOrder) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  std::vector<std::string> sources;
  for (int i = 0; i < 6; ++i) {
    sources.push_back("extern \"C\" __global__ void kernel" + std::to_string(i) +
                      "(int* x) { *x = 1; }");
  }
  const std::vector<CompiledKernel> kernels = compiler->compile_all(sources);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string image(kernels[i].cubin.begin(), kernels[i].cubin.end());
    EXPECT_THAT(image, HasSubstr("kernel" + std::to_string(i)));
  }
}

}  // namespace
}  // namespace coda::gpu
