// SPDX-License-Identifier: Apache-2.0
// What is compiled once is found again, by this and other processes; what is damaged is made anew;
// a folder that cannot be used costs a notice, never the kernel; the entries used longest ago go
// first.
#include "gpu/jit/cubin_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "base/atomic_file.h"
#include "base/sha256.h"
#include "gpu/jit/kernel_builder.h"
#include "gpu/nvrtc.h"
#include "io/failing_disk.h"
#include "io/temp_folder.h"

namespace coda::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CompiledKernel kernel_of(const std::string& name, size_t bytes = 100) {
  CompiledKernel kernel;
  kernel.cubin.assign(bytes, 'x');
  std::copy(name.begin(), name.end(), kernel.cubin.begin());
  kernel.cubin[bytes / 2] = '\n';
  kernel.log = "log of " + name + "\nsecond line";
  kernel.registers = 168;
  kernel.defect = "registers spill";
  return kernel;
}

std::string key_of(const std::string& name) { return sha256(name); }

bool same(const CompiledKernel& a, const CompiledKernel& b) {
  return a.cubin == b.cubin && a.log == b.log && a.registers == b.registers && a.defect == b.defect;
}

class CubinCacheTest : public ::testing::Test {
 protected:
  CacheOptions options(int64_t limit = 1 << 20) {
    return {.folder = folder_.path(),
            .limit_bytes = limit,
            .notice = [this](const std::string& text) { notices_.push_back(text); }};
  }

  // What the cache gives for `name`, and whether it was compiled.
  bool compiles(CubinCache& cache, const std::string& name, size_t bytes = 100) {
    bool compiled = false;
    const CompiledKernel kernel = cache.get(key_of(name), [&] {
      compiled = true;
      return kernel_of(name, bytes);
    });
    EXPECT_TRUE(same(kernel, kernel_of(name, bytes))) << name;
    return compiled;
  }

  fs::path entry(const std::string& name) const {
    return folder_.path() / "cubins" / (key_of(name) + ".cubin");
  }

  TempFolder folder_;
  std::vector<std::string> notices_;
};

TEST_F(CubinCacheTest, FindsAgainWhatWasCompiledWithAllThatIsKnownOfIt) {
  {
    CubinCache cache(options());
    EXPECT_TRUE(compiles(cache, "a"));
    EXPECT_TRUE(compiles(cache, "b"));
    EXPECT_FALSE(compiles(cache, "a"));
    EXPECT_EQ(cache.hits(), 1);
    EXPECT_EQ(cache.misses(), 2);
  }
  CubinCache another(options());
  EXPECT_FALSE(compiles(another, "a"));
  EXPECT_FALSE(compiles(another, "b"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(CubinCacheTest, ATextThatDoesNotCompileIsNotKept) {
  CubinCache cache(options());
  for (int i = 0; i < 2; ++i) {
    const CompiledKernel kernel = cache.get(key_of("bad"), [] {
      CompiledKernel bad;
      bad.defect = "does not compile";
      return bad;
    });
    EXPECT_TRUE(kernel.cubin.empty());
  }
  EXPECT_EQ(cache.misses(), 2);
  EXPECT_FALSE(fs::exists(entry("bad")));
}

// Every byte counts: one is changed, or the file ends before it.
TEST_F(CubinCacheTest, ADamagedEntryIsRemovedAndMadeAnewWithOneNotice) {
  CubinCache cache(options());
  compiles(cache, "a");
  std::ifstream file(entry("a"), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  int damages = 0;
  for (size_t at = 0; at < good.size(); at += 11) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(std::to_string(at) + (cut ? " cut" : " changed"));
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      if (cut) bad = good.substr(0, at);
      std::ofstream(entry("a"), std::ios::binary) << bad;
      EXPECT_TRUE(compiles(cache, "a"));
      EXPECT_FALSE(compiles(cache, "a"));
      ++damages;
    }
  }
  EXPECT_GT(damages, 30);
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr("damaged and is compiled again: " + entry("a").string()));
}

TEST_F(CubinCacheTest, AmongProcessesOneCompilesAKeyAndTheOthersWait) {
  constexpr int kProcesses = 6;
  const fs::path witness = folder_ / "witness";
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      CubinCache cache(options());
      for (const std::string name : {"a", "b", "c"}) {
        const CompiledKernel kernel = cache.get(key_of(name), [&] {
          std::ofstream(witness, std::ios::app) << name << std::flush;
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          return kernel_of(name);
        });
        good = good && same(kernel, kernel_of(name));
      }
      _exit(good && notices_.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::ifstream file(witness);
  const std::string compiled{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(compiled, "abc");
}

TEST_F(CubinCacheTest, AmongThreadsOneCompilesAKey) {
  CubinCache cache(options());
  std::atomic<int> compiled = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) {
        cache.get(key_of(std::to_string(j)), [&] {
          ++compiled;
          return kernel_of(std::to_string(j));
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled, 20);
  EXPECT_EQ(cache.hits() + cache.misses(), 120);
}

TEST_F(CubinCacheTest, WhatWasUsedLongestAgoGoesFirst) {
  CubinCache cache(options(20000));
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 5; ++i) {
    const std::string name = std::to_string(i);
    compiles(cache, name, 3500);
    fs::last_write_time(entry(name), now - std::chrono::hours(10 - i));
  }
  EXPECT_FALSE(compiles(cache, "0", 3500));  // used again, so "1" is now the oldest
  EXPECT_TRUE(compiles(cache, "new", 3500));
  std::set<std::string> left;
  for (const std::string name : {"0", "1", "2", "3", "4", "new"})
    if (fs::exists(entry(name))) left.insert(name);
  EXPECT_THAT(left, ElementsAre("0", "2", "3", "4", "new"));
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(CubinCacheTest, AnEntryAboveTheLimitStaysUntilTheNext) {
  CubinCache cache(options(1000));
  EXPECT_TRUE(compiles(cache, "large", 5000));
  EXPECT_FALSE(compiles(cache, "large", 5000));
  EXPECT_TRUE(compiles(cache, "small", 100));
  EXPECT_FALSE(fs::exists(entry("large")));
}

TEST_F(CubinCacheTest, WhatACrashLeftIsRemoved) {
  CubinCache cache(options());
  const fs::path left = cache.folder() / ".coda-1-0.tmp";
  std::ofstream(left) << "half";
  AtomicFile writing(cache.folder() / "of another process");
  compiles(cache, "a");
  EXPECT_FALSE(fs::exists(left));
  writing.commit();
}

// A kernel runs with all that the process may do: one that somebody else can have put there is not
// loaded, and is made anew where that can be done.
TEST_F(CubinCacheTest, AnEntryThatOthersMayHaveWrittenIsNotLoaded) {
  {
    CubinCache cache(options());
    for (const char* name : {"mode", "owner", "link", "other"}) compiles(cache, name);
  }
  EXPECT_EQ(fs::status(entry("mode")).permissions(), fs::perms(0600)) << "whatever the umask is";
  fs::permissions(entry("mode"), fs::perms(0666));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(entry("owner").c_str(), 65534, 65534), 0);
  }
  fs::rename(entry("link"), folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", entry("link"));
  fs::copy_file(entry("other"), entry("another"));
  for (const char* name : {"mode", "owner", "link", "another"}) {
    if (name == std::string("owner") && ::geteuid() != 0) continue;
    CubinCache cache(options());
    notices_.clear();
    EXPECT_TRUE(compiles(cache, name)) << name;
    ASSERT_EQ(notices_.size(), 1U) << name;
    EXPECT_THAT(notices_[0], HasSubstr("compiled again"));
    EXPECT_FALSE(compiles(cache, name)) << name << " was made anew, as the user's own";
  }
}

TEST_F(CubinCacheTest, APipeOrAFolderInPlaceOfAnEntryDoesNotHang) {
  CubinCache cache(options());
  ASSERT_EQ(::mkfifo(entry("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((cache.folder() / (key_of("lock").substr(0, 2) + ".lock")).c_str(), 0600), 0);
  fs::create_directory(entry("folder"));
  for (const char* name : {"pipe", "folder"}) {
    EXPECT_TRUE(compiles(cache, name));
    EXPECT_TRUE(compiles(cache, name)) << "it cannot be kept there";
  }
  EXPECT_TRUE(compiles(cache, "lock"));
  EXPECT_THAT(notices_, testing::Contains(HasSubstr("no regular file")));
}

TEST_F(CubinCacheTest, AFolderThatCannotBeMadeCostsOneNotice) {
  std::ofstream(folder_ / "file") << "no folder";
  CacheOptions o = options();
  o.folder = folder_ / "file";
  CubinCache cache(o);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(compiles(cache, "a"));
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr("compiled kernels are not kept: cannot make"));
  EXPECT_THAT(notices_[0], HasSubstr("set CODA_CACHE_DIR"));
}

TEST_F(CubinCacheTest, AFolderThatCannotBeWrittenStillServesAndCostsOneNotice) {
  {
    CubinCache cache(options());
    compiles(cache, "kept");
  }
  // Root writes into read-only folders: it hands the files to somebody else and becomes that user.
  constexpr uid_t kNobody = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::chown(folder_.path().c_str(), kNobody, kNobody), 0);
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      ASSERT_EQ(::chown(entry.path().c_str(), kNobody, kNobody), 0);
  }
  fs::permissions(folder_ / "cubins", fs::perms::owner_read | fs::perms::owner_exec);
  ASSERT_EQ(is_root ? ::seteuid(kNobody) : 0, 0);
  CubinCache cache(options());
  EXPECT_FALSE(compiles(cache, "kept"));
  EXPECT_TRUE(compiles(cache, "a"));
  EXPECT_TRUE(compiles(cache, "b"));
  ASSERT_EQ(is_root ? ::seteuid(0) : 0, 0);
  fs::permissions(folder_ / "cubins", fs::perms::owner_all);
  ASSERT_EQ(notices_.size(), 1U);
}

TEST_F(CubinCacheTest, AFullDiskCostsOneNoticeAndLeavesNothing) {
  CubinCache cache(options());
  {
    const FailingDisk disk(1000);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(compiles(cache, "a", 5000));
  }
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr("compiled kernels are not kept: cannot write"));
  EXPECT_TRUE(compiles(cache, "a", 5000));
  EXPECT_FALSE(compiles(cache, "a", 5000));
}

TEST_F(CubinCacheTest, NoFolderAtAllCostsOneNotice) {
  CacheOptions o = options();
  o.folder.clear();
  CubinCache cache(o);
  EXPECT_TRUE(compiles(cache, "a"));
  EXPECT_TRUE(compiles(cache, "a"));
  ASSERT_EQ(notices_.size(), 1U);
  EXPECT_THAT(notices_[0], HasSubstr("none of CODA_CACHE_DIR, XDG_CACHE_HOME and HOME is set"));
}

TEST(CacheFolder, IsNamedByTheFirstVariableThatIsSet) {
  const auto with = [](const char* own, const char* caches, const char* home) {
    setenv("CODA_CACHE_DIR", own, 1);
    setenv("XDG_CACHE_HOME", caches, 1);
    const std::string before = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
    setenv("HOME", home, 1);
    const fs::path folder = default_cache_folder();
    setenv("HOME", before.c_str(), 1);
    unsetenv("CODA_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    return folder;
  };
  EXPECT_EQ(with("/own", "/caches", "/home/me"), "/own");
  EXPECT_EQ(with("", "/caches", "/home/me"), "/caches/coda");
  EXPECT_EQ(with("", "", "/home/me"), "/home/me/.cache/coda");
  EXPECT_EQ(with("", "", ""), "");
}

TEST(CacheKey, NamesTheCompilerAndItsOptions) {
  const std::vector<std::string> options = NvrtcCompiler::options_of({12, 8}, sm90());
  std::vector<std::string> without = options;
  without.pop_back();
  std::vector<std::string> others = options;
  others.back() += "x";
  std::vector<std::string> in_another_order(options.rbegin(), options.rend());
  std::set<std::string> keys;
  for (const auto& some : {options, without, others, in_another_order})
    keys.insert(cache_key({12, 8}, sm90(), some, "a digest", "a text"));
  keys.insert(cache_key({12, 9}, sm90(), options, "a digest", "a text"));
  keys.insert(cache_key({12, 8}, sm90(), options, "another", "a text"));
  keys.insert(cache_key({12, 8}, sm90(), options, "a digest", "another"));
  EXPECT_EQ(keys.size(), 7U);
  EXPECT_EQ(cache_key({12, 8}, sm90(), "a digest", "a text"),
            cache_key({12, 8}, sm90(), options, "a digest", "a text"));
}

// Anything that changes the cubin changes the key.
TEST(CacheKey, NamesTextAndDeviceCode) {
  const auto compiler = find_nvrtc();
  if (!compiler) GTEST_SKIP() << "no NVRTC";
  const NvrtcCompiler other(NvrtcCompiler::Headers{{"device/types.cuh", "// another"}});
  std::set<std::string> keys = {cache_key(*compiler, "a"), cache_key(*compiler, "b"),
                                cache_key(other, "a"), cache_key(other, "b")};
  EXPECT_EQ(keys.size(), 4U);
  EXPECT_EQ(cache_key(*compiler, "a"), cache_key(NvrtcCompiler(), "a"));
}

TEST_F(CubinCacheTest, ABuilderCompilesOnceAndNamesTheProgramOfATextThatDoesNot) {
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::string source = "extern \"C\" __global__ void kernel(int* x) { *x = 1; }";
  KernelBuilder first(options());
  const CompiledKernel kernel = first.build("store_one", source);
  KernelBuilder second(options());
  EXPECT_TRUE(same(second.build("store_one", source), kernel));
  EXPECT_EQ(first.cache().misses(), 1);
  EXPECT_EQ(second.cache().misses(), 0);
  try {
    second.build("bad", "__global__ void kernel() { nothing(); }");
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the kernel of program 'bad' does not compile"));
    EXPECT_THAT(error.what(), HasSubstr("\"nothing\" is undefined"));
  }
}

}  // namespace
}  // namespace coda::gpu
