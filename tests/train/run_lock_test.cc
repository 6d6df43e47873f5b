// SPDX-License-Identifier: Apache-2.0
// A run's folder has one owner at a time, and is as before once the owner is gone.
#include "coda/run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "coda/error.h"
#include "io/temp_folder.h"

namespace coda {
namespace {

namespace fs = std::filesystem;

TEST(RunLock, HasOneOwnerAndLeavesNothing) {
  const TempFolder folder;
  const fs::path run = folder / "a/run";
  {
    const RunLock lock(run);
    EXPECT_TRUE(fs::is_directory(run));
    EXPECT_THROW(RunLock{run}, Error);
    const RunLock other(folder / "a/other");
  }
  EXPECT_NO_THROW(RunLock{run});
  EXPECT_TRUE(fs::is_empty(run));
}

TEST(RunLock, SaysWhichFolderCannotBeMade) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "text";
  try {
    const RunLock lock(folder / "file/run");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("file/run"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coda
