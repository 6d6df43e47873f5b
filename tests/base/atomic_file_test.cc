// SPDX-License-Identifier: Apache-2.0
// A file is replaced as a whole or not at all, whatever fails, and no temporary stays behind.
#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

// In a folder that somebody else has made a link may lead to any file of the user's.
TEST(AtomicFile, ReplacesALinkAndNotWhatItLeadsTo) {
  const TempFolder folder;
  write_file_atomically(folder / "real.txt", "old");
  fs::create_symlink("real.txt", folder / "link.txt");
  fs::create_symlink("missing.txt", folder / "dangling.txt");
  fs::create_symlink("loop.txt", folder / "loop.txt");
  for (const char* name : {"link.txt", "dangling.txt", "loop.txt"}) {
    write_file_atomically(folder / name, "new");
    EXPECT_EQ(fs::symlink_status(folder / name).type(), fs::file_type::regular) << name;
    EXPECT_EQ(read_file(folder / name), "new") << name;
  }
  EXPECT_EQ(read_file(folder / "real.txt"), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("dangling.txt", "link.txt", "loop.txt", "real.txt"));
}

TEST(AtomicFile, KeepsPermissionsButNotSetuid) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "old");
  ASSERT_EQ(::chmod((folder / "a.txt").c_str(), 04640), 0);
  write_file_atomically(folder / "a.txt", "new");
  EXPECT_EQ(fs::status(folder / "a.txt").permissions(), fs::perms(0640));
  write_file_atomically(folder / "a.txt", "newer", Access::owner);
  EXPECT_EQ(fs::status(folder / "a.txt").permissions(), fs::perms(0600));
}

// Temporaries of the dead go; those of the living, and what only looks like one, stay.
TEST(AtomicFile, WhatAKilledWriteLeftIsRemoved) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(folder / "a.txt");
    file.write("half");
    ::_exit(0);  // as SIGKILL would: nothing is cleaned up
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(folder.entries().size(), 1u);
  AtomicFile living(folder / "b.txt");
  fs::create_directory(folder / ".coda-1-1.tmp");
  write_file_atomically(folder / "mine.tmp", "x");
  remove_temporaries(folder.path());
  living.write("whole");
  living.commit();
  EXPECT_THAT(folder.entries(), ElementsAre(".coda-1-1.tmp", "b.txt", "mine.tmp"));
  remove_temporaries(folder / "missing");
}

TEST(MakeFolders, MakesAllThatAreMissing) {
  const TempFolder folder;
  make_folders(folder / "a/b/../c/");
  EXPECT_TRUE(fs::is_directory(folder / "a/c"));
  make_folders(folder / "a/c");
  write_file_atomically(folder / "file", "x");
  EXPECT_THAT(error_message([&] { make_folders(folder / "file/a"); }), HasSubstr("file"));
  EXPECT_THAT(error_message([&] { make_folders(folder / std::string(300, 'n')); }),
              HasSubstr("File name too long"));
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
