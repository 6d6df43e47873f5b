// SPDX-License-Identifier: Apache-2.0
// A record of the compiler leads to kernels without the compiler, as long as the file it names is
// unchanged and the environment the same.
#include "gpu/jit/compiler_record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gpu/jit/kernel_builder.h"
#include "gpu/nvrtc.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

namespace fs = std::filesystem;

class CompilerRecord : public testing::Test {
 protected:
  CompilerRecord() {
    fs::create_directories(cache());
    write(library(), "a library");
  }
  fs::path cache() const { return folder_.path() / "cubins"; }
  fs::path library() const { return folder_.path() / "libnvrtc.so.13"; }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

  TempFolder folder_;
};

TEST_F(CompilerRecord, CountsWhileTheFileIsUnchanged) {
  EXPECT_FALSE(recorded_compiler(cache()));
  record_compiler(cache(), library(), {13, 7});
  ASSERT_TRUE(recorded_compiler(cache()));
  EXPECT_EQ(*recorded_compiler(cache()), (CompilerVersion{13, 7}));
  write(library(), "a longer library");
  EXPECT_FALSE(recorded_compiler(cache()));
  record_compiler(cache(), library(), {13, 8});
  EXPECT_EQ(*recorded_compiler(cache()), (CompilerVersion{13, 8}));
  fs::remove(library());
  EXPECT_FALSE(recorded_compiler(cache()));
}

TEST_F(CompilerRecord, IsOfOneEnvironment) {
  record_compiler(cache(), library(), {13, 7});
  const char* const before = std::getenv("CUDA_PATH");
  const std::string kept = before == nullptr ? "" : before;
  setenv("CUDA_PATH", "/elsewhere", 1);
  EXPECT_FALSE(recorded_compiler(cache()));
  before == nullptr ? unsetenv("CUDA_PATH") : setenv("CUDA_PATH", kept.c_str(), 1);
  EXPECT_TRUE(recorded_compiler(cache()));
}

TEST_F(CompilerRecord, IsOptional) {
  record_compiler({}, library(), {13, 7});
  EXPECT_FALSE(recorded_compiler({}));
  record_compiler(cache(), folder_.path() / "no such library", {13, 7});
  EXPECT_FALSE(recorded_compiler(cache()));
  record_compiler(folder_.path() / "no such folder", library(), {13, 7});
  EXPECT_FALSE(recorded_compiler(folder_.path() / "no such folder"));
  record_compiler(cache(), library(), {13, 7});
  for (const fs::directory_entry& entry : fs::directory_iterator(cache())) {
    write(entry.path(), "damaged");
  }
  EXPECT_FALSE(recorded_compiler(cache()));
}

// No compiler has this version, so the kernel can only come from the cache.
TEST_F(CompilerRecord, LeadsToKernelsWithoutOpeningTheCompiler) {
  const CompilerVersion version{99, 1};
  record_compiler(cache(), library(), version);
  const CacheOptions options{.folder = folder_.path(), .notice = {}};
  CompiledKernel kernel;
  kernel.cubin = {'c', 'u', 'b', 'i', 'n'};
  CubinCache(options).get(cache_key(version, sm90(), digest_of(embedded_headers()), "the text"),
                          [&] { return kernel; });
  KernelBuilder builder(options);
  EXPECT_EQ(builder.build("program", "the text").cubin, kernel.cubin);
  EXPECT_EQ(builder.version(), version);
  EXPECT_EQ(builder.cache().hits(), 1);
}

// An architecture that is newer than the compiler, such as sm_120 for NVRTC 12.6: one notice.
TEST_F(CompilerRecord, ACompilerThatDoesNotKnowTheGpuIsNamedOnce) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  Target target = sm80_for(12, 0);
  target.compiler = {99, 1};
  std::vector<std::string> notices;
  CacheOptions options;
  options.folder = folder_.path();
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  KernelBuilder builder(options, target);
  builder.compiler();
  builder.compiler();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NE(notices[0].find("does not know sm_120: the driver compiles the kernels"),
            std::string::npos);
  EXPECT_NE(notices[0].find("install NVRTC 99.1"), std::string::npos);
}

}  // namespace
}  // namespace coda::gpu
