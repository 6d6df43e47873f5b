// SPDX-License-Identifier: Apache-2.0
// One run at a time in a run's folder. The lock is the kernel's, on the folder itself: nothing is
// left behind by a run that is killed.
#pragma once

#include <filesystem>

namespace coda::train {

class RunLock {
 public:
  // Makes the folder if it is missing. Error if another process, or another RunLock, holds it. File
  // systems that cannot lock a folder go without.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace coda::train
