// SPDX-License-Identifier: Apache-2.0
#include "base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace coda {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number behind `key` at the start of a line; the file's first number where it is empty. None
// where there is no such number: "max" is no limit.
std::optional<int64_t> number_in(const fs::path& file, const std::string& key = "") {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    if (!key.empty() && !(words >> name && name == key)) continue;
    int64_t number = 0;
    if (words >> number) return number;
    if (key.empty()) return std::nullopt;
  }
  return std::nullopt;
}

// What a group's limit leaves. Pages of files that nobody uses are counted as used, and given up
// when they are wanted.
int64_t left_in(const fs::path& group, const char* limit_file, const char* used_file,
                const char* inactive_key) {
  const auto limit = number_in(group / limit_file);
  const auto used = number_in(group / used_file);
  if (!limit || !used) return kUnlimited;
  const int64_t reclaimed = number_in(group / "memory.stat", inactive_key).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - reclaimed));
}

// The least of a group's and those around it, up to the mount.
int64_t left_in_all(const fs::path& mount, const std::string& group, const char* limit_file,
                    const char* used_file, const char* inactive_key) {
  int64_t left = kUnlimited;
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    left = std::min(left, left_in(mount / path, limit_file, used_file, inactive_key));
    if (path.empty()) return left;
  }
}

}  // namespace

int64_t free_memory(const fs::path& root) {
  int64_t left = kUnlimited;
  if (const auto kilobytes = number_in(root / "proc/meminfo", "MemAvailable:"))
    left = *kilobytes * 1024;
  // Lines of "number:controllers:path": version 2 has number 0 and no controllers. A container may
  // see its own group as the root of the mount, so that the path says nothing there.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      left = std::min(left, left_in_all(root / "sys/fs/cgroup", path, "memory.max",
                                        "memory.current", "inactive_file"));
    } else if (controllers.find(",memory,") != std::string::npos) {
      left =
          std::min(left, left_in_all(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                     "memory.usage_in_bytes", "total_inactive_file"));
    }
  }
  return left;
}

}  // namespace coda
