// SPDX-License-Identifier: Apache-2.0
// The commands about kernels, without a GPU: `coda compile` fills a cache, `coda emit --choices`
// says where a choice comes from, `coda tune` refuses with a reason, `coda info` answers anyway.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/run_command.h"

namespace coda {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kProgram = R"(program projection {
  acc = gemm(x[M, K]:bf16, w[N, K]:bf16, nt)
  store(y:bf16, acc)
})";
const Words kSizes{"--sizes", "M=512,N=256,K=128"};

// A cache of its own, no GPU even where there is one, and NVRTC where `make setup` puts it.
class KernelCommands : public testing::Test {
 protected:
  KernelCommands() : program_(folder_.write("projection.coda", kProgram)) {
    setenv("CODA_CACHE_DIR", (folder_ / "cache").c_str(), 1);
    setenv("CODA_CUDA_DRIVER", (folder_ / "no_driver.so").c_str(), 1);
    setenv("VIRTUAL_ENV", CODA_SOURCE_DIR "/.venv", 1);
    unsetenv("CODA_NVRTC");
  }
  ~KernelCommands() override {
    for (const char* name : {"CODA_CACHE_DIR", "CODA_CUDA_DRIVER", "VIRTUAL_ENV", "CODA_NVRTC"})
      unsetenv(name);
  }

  // False, and the test is skipped, where NVRTC is not installed.
  static bool has_nvrtc() {
    const json info = json::parse(run_coda({"info", "--json"}).out);
    const bool has = !info["nvrtc"].get<std::string>().starts_with("none");
    EXPECT_TRUE(has || std::getenv("CODA_REQUIRE_NVRTC") == nullptr) << info["nvrtc"];
    return has;
  }

  TestFolder folder_;
  std::string program_;
};

TEST_F(KernelCommands, CompileFillsTheCacheOnce) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Words command = Words{"compile", program_, "--json"} + kSizes;
  for (const bool again : {false, true}) {
    const CommandResult result = run_coda(command);
    ASSERT_EQ(result.status, 0) << result.err;
    const json done = json::parse(result.out);
    EXPECT_EQ(done["kernels"], 1);
    EXPECT_EQ(done["compiled"], again ? 0 : 1);
    EXPECT_EQ(done["cached"], again ? 1 : 0);
    EXPECT_EQ(done["folder"], folder_ / "cache" + "/cubins");
    EXPECT_TRUE(done["defects"].empty());
  }
  const CommandResult text = run_coda(Words{"compile", program_} + kSizes);
  EXPECT_THAT(text.out, HasSubstr("0 compiled, 1 were in the cache"));
  EXPECT_THAT(run_coda({"info"}).out, HasSubstr("cache: 1 kernels"));
}

TEST_F(KernelCommands, CompileSaysWhereItLookedForTheCompiler) {
  setenv("CODA_NVRTC", (folder_ / "nowhere").c_str(), 1);
  const CommandResult result = run_coda(Words{"compile", program_} + kSizes);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("CODA_NVRTC"));
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
}

TEST_F(KernelCommands, SizesThatAreMissingAreNamed) {
  for (const char* command : {"compile", "emit"}) {
    const CommandResult result = run_coda({command, program_, "--sizes", "M=512,K=128"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(program_));
    EXPECT_THAT(result.err, HasSubstr("N"));
  }
}

TEST_F(KernelCommands, ChoicesSayWhereTheyComeFrom) {
  const Words command = Words{"emit", program_, "--choices"} + kSizes;
  const CommandResult before = run_coda(command);
  EXPECT_EQ(before.status, 0) << before.err;
  EXPECT_THAT(before.out, StartsWith("projection: "));
  EXPECT_THAT(before.out, HasSubstr("class tn p1 s1, extents 512x256x128"));
  EXPECT_THAT(before.out, Not(HasSubstr("tuned")));
  std::filesystem::create_directories(folder_ / "cache/tuned");
  folder_.write("cache/tuned/some GPU, 132 multiprocessors, driver 1.txt",
                "# coda tuned 1\ntn p1 s1 | 512x256x128 | 64x64p11s4 1.00 128x128p12s6 2.00\n");
  EXPECT_THAT(run_coda(command).out,
              StartsWith("projection: 64x64 ping-pong, cluster 1x1, 4 stages, from tuned at "
                         "512x256x128\n"));
}

// A card that is named gets the kernels of its target, with its multiprocessors and shared memory.
TEST_F(KernelCommands, KernelsAreThoseOfTheCard) {
  const CommandResult ada = run_coda(Words{"emit", program_, "--gpu", "RTX4090"} + kSizes);
  EXPECT_EQ(ada.status, 0) << ada.err;
  EXPECT_THAT(ada.out, HasSubstr("sm80::program_kernel"));
  EXPECT_EQ(run_coda(Words{"emit", program_, "--gpu", "h200"} + kSizes).out,
            run_coda(Words{"emit", program_} + kSizes).out);
  const CommandResult list = run_coda(Words{"tune", program_, "--list", "--gpu", "l4"} + kSizes);
  EXPECT_EQ(list.status, 0) << list.err;
  const CommandResult tune = run_coda(Words{"tune", program_, "--gpu", "l4"} + kSizes);
  EXPECT_THAT(tune.err, HasSubstr("--gpu is for --list"));
  for (const char* command : {"emit", "compile"}) {
    const CommandResult wrong = run_coda(Words{command, program_, "--gpu", "rtx4089"} + kSizes);
    EXPECT_EQ(wrong.status, 1);
    EXPECT_THAT(wrong.err, HasSubstr("no GPU named 'rtx4089' is known; the nearest names are RTX"));
  }
}

TEST_F(KernelCommands, EightBitsAreRefusedWithTheCardsThatHaveThem) {
  const std::string program = folder_.write("eight.coda", R"(program eight {
  store(y:bf16, gemm(x[M, K]:e4m3, w[N, K]:e4m3, nt))
})");
  const CommandResult ampere = run_coda(Words{"emit", program, "--gpu", "rtx3090"} + kSizes);
  EXPECT_EQ(ampere.status, 1);
  EXPECT_THAT(ampere.err, HasSubstr("tensor 'x' has 8-bit floats, which the target sm80 does not "
                                    "support: RTX 40 and 50, L4, L40S"));
  const CommandResult ada = run_coda(Words{"emit", program, "--gpu", "rtx4090"} + kSizes);
  EXPECT_EQ(ada.status, 0) << ada.err;
  EXPECT_THAT(ada.out, HasSubstr("Element::e4m3"));
}

TEST_F(KernelCommands, TuneNeedsAGpuAndSaysSo) {
  const CommandResult result = run_coda(Words{"tune", program_} + kSizes);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("driver"));
  EXPECT_THAT(result.err, HasSubstr("no_driver.so"));
  const CommandResult list = run_coda(Words{"tune", program_, "--list"} + kSizes);
  EXPECT_EQ(list.status, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("tn p1 s1 | 512x256x128 | projection"));
  EXPECT_THAT(list.out, HasSubstr("\n1 kernel\n"));
}

// With a driver that launches nothing: results are not what they should be, and all is said.
TEST_F(KernelCommands, CheckOnAGpuSaysWhatIsWrong) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  setenv("CODA_CUDA_DRIVER", CODA_FAKE_CUDA, 1);
  const CommandResult result =
      run_coda(Words{"check", program_, "--backend", "gpu", "--configurations", "1"} + kSizes);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("Fake GPU"));
  EXPECT_THAT(result.out, HasSubstr("gpu: y"));
  EXPECT_THAT(result.out, HasSubstr("error inf"));
  EXPECT_THAT(result.err, HasSubstr("a backend does not compute what the program says"));
}

TEST_F(KernelCommands, InfoAnswersWithoutAGpu) {
  const CommandResult result = run_coda({"info", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json info = json::parse(result.out);
  for (const char* key : {"gpu", "gpu driver", "nvrtc", "kernel cache", "shipped table", "tuned"}) {
    const std::string text = info[key];
    EXPECT_FALSE(text.empty()) << key;
    EXPECT_EQ(text.find('\n'), std::string::npos) << key;
  }
  EXPECT_THAT(info["gpu"].get<std::string>(), StartsWith("none: "));
  EXPECT_THAT(info["gpu"].get<std::string>(), HasSubstr("no_driver.so"));
}

}  // namespace
}  // namespace coda
