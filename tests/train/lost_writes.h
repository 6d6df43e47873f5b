// SPDX-License-Identifier: Apache-2.0
// A file system that may lose what was not synced, for a test. This test program's own open, write,
// fsync, rename and so on (lost_writes.cc) stand before the system's, under everything that writes
// files; while a LostWrites lives they keep a model of one folder: what it holds, and what of it
// would be there after the power failed. After each call the test is asked to look at what a crash
// may leave.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace coda {

// What a crash leaves beside what was synced, which is always there.
enum class Crash : uint8_t {
  drops_all,         // nothing: neither names nor content
  keeps_names,       // all renames and removals, as a file system may that orders those alone
  keeps_some_names,  // those of half of the folders, by a seed
};

struct LostWritesOptions {
  // Syncs that do nothing, to show that their absence is noticed.
  bool syncs_files = true;
  bool syncs_folders = true;
};

class LostWrites {
 public:
  // `folder` exists and is empty. `after_call` may read the folder and call leave_at.
  LostWrites(const std::filesystem::path& folder, std::function<void()> after_call,
             LostWritesOptions options = {});
  ~LostWrites();
  LostWrites(const LostWrites&) = delete;
  LostWrites& operator=(const LostWrites&) = delete;

  // Makes `folder`, which does not exist, what the crash leaves.
  void leave_at(const std::filesystem::path& folder, Crash crash, uint64_t seed = 0) const;
};

}  // namespace coda
