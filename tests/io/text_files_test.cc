// SPDX-License-Identifier: Apache-2.0
// Which files of a folder are texts to train on, judged by Git where its rules are read; and that
// nothing of the folder is run or followed.
#include "io/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/atomic_file.h"
#include "io/error_message.h"
#include "io/ignore_rules.h"
#include "io/mapped_file.h"
#include "io/temp_folder.h"

namespace coda::io {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

class TextFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content = "text\n") {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, content);
  }
  std::vector<std::string> found(bool sorted = true) {
    std::vector<std::string> names;
    for (const fs::path& file : texts_in(folder_.path())) {
      names.push_back(file.lexically_relative(folder_.path()).string());
    }
    if (sorted) std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
};

TEST_F(TextFiles, AreTheTextsAtAnyDepth) {
  write("b.txt");
  write("a/z.txt");
  write("c/d/e.md");
  write("empty.txt", "");
  write("picture.bin", "P\0\1"s);
  write("late.bin", std::string(100000, 'P') + "\0"s);
  write(".hidden");
  write(".git/config");
  write("c/build/x.txt");
  write("out/x.txt");
  write("node_modules/x.txt");
  EXPECT_THAT(found(), ElementsAre("a/z.txt", "b.txt", "c/d/e.md"));
}

TEST_F(TextFiles, NoLinkIsFollowedAndNoDeviceRead) {
  write("b.txt");
  fs::create_symlink(folder_.path(), folder_ / "loop");
  fs::create_symlink("/etc/passwd", folder_ / "again.txt");
  fs::create_symlink("/etc/passwd", folder_ / ".gitignore");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.txt").c_str(), 0600), 0);
  EXPECT_THAT(found(), ElementsAre("b.txt"));
}

TEST_F(TextFiles, TheOrderIsShuffledAndTheSameFromRunToRun) {
  for (char name = 'a'; name <= 'z'; ++name) write(std::string(1, name));
  const std::vector<std::string> names = found(false);
  EXPECT_EQ(names.size(), 26u);
  EXPECT_FALSE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(found(false), names);

  // One more leaves the others where they are.
  write("sub/new");
  std::vector<std::string> more = found(false);
  EXPECT_EQ(std::erase(more, "sub/new"), 1u);
  EXPECT_EQ(more, names);
}

TEST_F(TextFiles, WhatGitattributesCallsGeneratedIsLeftOut) {
  write(".gitattributes",
        "# tables\n*.inc linguist-generated\nmade/** text linguist-generated=true\n");
  write("sub/.gitattributes", "keep.inc -linguist-generated\n");
  write("a.inc");
  write("sub/keep.inc");
  write("sub/b.inc");
  write("made/deep/c.txt");
  write("d.txt");
  EXPECT_THAT(found(), ElementsAre("d.txt", "sub/keep.inc"));
}

TEST_F(TextFiles, AFolderOrFileThatCannotBeReadIsNamed) {
  write("sub/a.txt");
  write(".gitignore", std::string(100000, 'x'));
  EXPECT_THAT(error_message([&] { texts_in(folder_.path()); }), HasSubstr(".gitignore"));
  EXPECT_THAT(error_message([&] { texts_in(folder_ / "none"); }),
              testing::AllOf(HasSubstr("cannot read the folder"), HasSubstr("none")));
  fs::remove(folder_ / ".gitignore");
  fs::permissions(folder_ / "sub", fs::perms::none);
  const bool is_root = ::geteuid() == 0;
  fs::permissions(folder_.path(), fs::perms(0755));
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string message = error_message([&] { texts_in(folder_.path()); });
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder_ / "sub", fs::perms::owner_all);
  EXPECT_THAT(message, testing::AllOf(HasSubstr("sub"), HasSubstr("Permission denied")));
}

TEST(IgnoreRules, PatternsAreThoseOfGit) {
  const auto ignored = [](const std::string& rules, const std::string& path,
                          bool is_folder = false) {
    IgnoreRules all;
    all.add_ignored(rules, "");
    return all.ignores(path, is_folder);
  };
  EXPECT_TRUE(ignored("*.pyc", "a/b/c.pyc"));
  EXPECT_FALSE(ignored("*.pyc", "a/b/c.py"));
  EXPECT_TRUE(ignored("/build*/", "build-debug", true));
  EXPECT_FALSE(ignored("/build*/", "build-debug")) << "a file";
  EXPECT_FALSE(ignored("/build*/", "a/build", true)) << "only in this folder";
  EXPECT_TRUE(ignored("a/**/z", "a/z"));
  EXPECT_TRUE(ignored("a/**/z", "a/b/c/z"));
  EXPECT_FALSE(ignored("a/*/z", "a/b/c/z"));
  EXPECT_TRUE(ignored("logs/**", "logs/a/b"));
  EXPECT_TRUE(ignored("a?[b-d]\\*", "axc*"));
  EXPECT_FALSE(ignored("a?[!b-d]", "axc"));
  EXPECT_TRUE(ignored("a[", "a["));
  EXPECT_FALSE(ignored("*.txt\n!keep.txt", "keep.txt"));
  EXPECT_TRUE(ignored("!keep.txt\n*.txt", "keep.txt")) << "the last rule that matches";
  EXPECT_FALSE(ignored("# a\n\n  \r\n", "a"));
}

// Judged by Git itself, in a folder of ours.
TEST_F(TextFiles, GitignoreMeansWhatGitSays) {
  const std::string git = "git -C " + folder_.path().string() + " ";
  if (std::system("command -v git > /dev/null") != 0) GTEST_SKIP() << "Git is not installed";
  ASSERT_EQ(std::system((git + "init > /dev/null 2>&1").c_str()), 0);
  write(".gitignore", "*.log\n!keep.log\n/top.txt\ntmp/\ndocs/*.md\n**/deep/x?.txt\nabc/**/y\n");
  write("sub/.gitignore", "/only.txt\n!wanted.log\n");
  for (const char* name : {"a.log", "keep.log", "top.txt", "sub/top.txt", "tmp/a.txt", "sub/tmp/b",
                           "docs/a.md", "docs/in/a.md", "q/deep/x1.txt", "deep/x22.txt", "abc/y",
                           "abc/d/e/y", "sub/only.txt", "sub/in/only.txt", "sub/wanted.log"}) {
    write(name);
  }
  const fs::path list = folder_ / ".list";
  ASSERT_EQ(std::system((git + "ls-files -o --exclude-standard > " + list.string()).c_str()), 0);
  std::vector<std::string> expected;
  std::string name;
  for (const char c : read_file(list)) {
    if (c != '\n') {
      name += c;
      continue;
    }
    if (name.find("/.") == std::string::npos && name[0] != '.') expected.push_back(name);
    name.clear();
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found(), expected);
  EXPECT_GT(expected.size(), 4u);
}

// The work is the product of both lengths; a matcher that tries again at every star would not end.
TEST(IgnoreRules, ManyStarsEnd) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(matches(pattern + "b", std::string(2000, 'a')));
  EXPECT_TRUE(matches(pattern, std::string(2000, 'a')));
}

}  // namespace
}  // namespace coda::io
