// SPDX-License-Identifier: Apache-2.0
// A file is replaced as a whole or not at all, whatever fails, and no temporary stays behind.
#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "io/error_message.h"
#include "io/failing_disk.h"
#include "io/temp_folder.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AtomicFile, ReplacesTheContentAndLeavesNothingElse) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old content, longer");
  write_file_atomically(folder / "a.txt", "new");
  EXPECT_EQ(read_file(folder / "a.txt"), "new");
  write_file_atomically(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt", "empty"));
}

TEST(AtomicFile, TheOldContentStandsUntilCommit) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    file.write("new");
    EXPECT_EQ(read_file(folder / "a.txt"), "old");
    file.write(" content");
    file.commit();
    EXPECT_EQ(read_file(folder / "a.txt"), "new content");
    EXPECT_THROW(file.write("more"), InternalError);
    EXPECT_THROW(file.commit(), InternalError);
  }
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, AnAbandonedWriteChangesNothing) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  {
    AtomicFile file(folder / "a.txt");
    file.write("half of the ne");
  }
  EXPECT_EQ(read_file(folder / "a.txt"), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, AFullDiskKeepsTheOldFile) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  std::string message;
  {
    const FailingDisk full(4096);
    message =
        error_message([&] { write_file_atomically(folder / "a.txt", std::string(1 << 20, 'n')); });
  }
  EXPECT_THAT(message,
              AllOf(HasSubstr("a.txt"), HasSubstr("too large"), HasSubstr("free some space")));
  EXPECT_EQ(read_file(folder / "a.txt"), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, AReadOnlyFolderIsRefused) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec |
                                     fs::perms::others_read | fs::perms::others_exec);
  const bool is_root = ::geteuid() == 0;  // root may write anywhere: become nobody for the attempt
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string message =
      error_message([&] { write_file_atomically(folder / "a.txt", "new"); });
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_THAT(message, AllOf(HasSubstr("a.txt: Permission denied"), HasSubstr("permissions")));
  EXPECT_EQ(read_file(folder / "a.txt"), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt"));
}

TEST(AtomicFile, RefusesFoldersDevicesAndMissingFolders) {
  const TempFolder folder;
  const auto write_to = [](const fs::path& path) {
    return error_message([&] { write_file_atomically(path, "x"); });
  };
  EXPECT_THAT(write_to(folder.path()), HasSubstr("Is a directory"));
  EXPECT_THAT(write_to(folder.path() / ""), HasSubstr("Is a directory"));
  EXPECT_THAT(write_to("/dev/full"), HasSubstr("neither a regular file nor a free name"));
  EXPECT_THAT(write_to(folder / "missing/a.txt"), HasSubstr("No such file"));
  EXPECT_THAT(write_to(folder / std::string(300, 'n')), HasSubstr("File name too long"));
  EXPECT_THAT(folder.entries(), ElementsAre());
}

TEST(AtomicFile, WritesThroughASymbolicLinkAndKeepsPermissions) {
  const TempFolder folder;
  write_file_atomically(folder / "real.txt", "old");
  fs::permissions(folder / "real.txt", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real.txt", folder / "link.txt");
  write_file_atomically(folder / "link.txt", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link.txt"));
  EXPECT_EQ(read_file(folder / "real.txt"), "new");
  EXPECT_EQ(fs::status(folder / "real.txt").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(AtomicFile, TwoWritersOfOneFileDoNotMix) {
  const TempFolder folder;
  AtomicFile first(folder / "a.txt");
  AtomicFile second(folder / "a.txt");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read_file(folder / "a.txt"), "first");
  EXPECT_THAT(folder.entries(), ElementsAre("a.txt"));
}

}  // namespace
}  // namespace coda
