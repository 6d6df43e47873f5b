// SPDX-License-Identifier: Apache-2.0
// Free memory is what the system has available, or less where a control group of either version
// has a limit, the process's own or one around it; on folders that look like a system's.
#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "io/temp_folder.h"

namespace coda {
namespace {

class FreeMemory : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = root / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void available(int64_t kilobytes) const {
    write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:  " + std::to_string(kilobytes) +
                              " kB\nSwapFree: 1 kB\n");
  }
  int64_t found() const { return free_memory(root); }

  TempFolder folder;
  std::filesystem::path root = folder.path();
};

TEST_F(FreeMemory, IsWhatTheSystemHasAvailable) {
  EXPECT_EQ(found(), std::numeric_limits<int64_t>::max());  // nobody says anything
  available(2000);
  EXPECT_EQ(found(), 2000 * 1024);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found(), 2000 * 1024);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "12345\n");
  EXPECT_EQ(found(), 2000 * 1024);
}

TEST_F(FreeMemory, IsNoMoreThanAGroupOfVersionTwoAllows) {
  available(2000);
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "1000000\n");
  write("sys/fs/cgroup/user/job/memory.current", "400000\n");
  EXPECT_EQ(found(), 600000);
  // Pages of files that nobody uses are given up.
  write("sys/fs/cgroup/user/job/memory.stat", "anon 1\ninactive_file 100000\nactive_file 7\n");
  EXPECT_EQ(found(), 700000);
  // A group around it has less.
  write("sys/fs/cgroup/user/memory.max", "500000\n");
  write("sys/fs/cgroup/user/memory.current", "450000\n");
  EXPECT_EQ(found(), 50000);
  write("sys/fs/cgroup/user/memory.current", "600000\n");  // more than it may
  EXPECT_EQ(found(), 0);
}

TEST_F(FreeMemory, IsNoMoreThanAGroupOfVersionOneAllows) {
  available(2000);
  write("proc/self/cgroup", "12:cpu,cpuacct:/job\n5:memory:/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(found(), 2000 * 1024);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n");
  write("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 20000\n");
  EXPECT_EQ(found(), 120000);
}

TEST(FreeMemoryHere, IsSomeAndNotMoreThanThereIs) {
  const int64_t here = free_memory();
  EXPECT_GT(here, 0);
  EXPECT_LT(here, int64_t{1} << 50);
}

}  // namespace
}  // namespace coda
