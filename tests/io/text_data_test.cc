// SPDX-License-Identifier: Apache-2.0
// Tokens from files and folders: which bytes, in which order; ids checked against the vocabulary;
// splits that leave whole sequences; a clear line for data that cannot be used.
#include "coda/text_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "io/error_message.h"
#include "io/temp_folder.h"

namespace coda::io {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

std::string text_of(const Tokens& tokens) {
  std::string text;
  for (int64_t i = 0; i < tokens.size(); ++i) text += static_cast<char>(tokens[i]);
  return text;
}

class TextData : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, content);
  }
  Tokens load(const std::string& name) { return load_text(folder_ / name); }
  std::string load_message(const std::string& name) {
    return error_message([&] { load(name); });
  }

  TempFolder folder_;
};

TEST_F(TextData, AFileIsItsBytes) {
  write("a.txt", "abc\1\xff");
  const Tokens tokens = load("a.txt");
  ASSERT_EQ(tokens.size(), 5);
  EXPECT_EQ(tokens[0], 'a');
  EXPECT_EQ(tokens[3], 1);
  EXPECT_EQ(tokens[4], 255);
  write("ids.bin", "a\0b\0"s);
  EXPECT_THAT(load_message("ids.bin"), HasSubstr("no text, it has a byte of 0 at 1"));
}

// Which files, and in which order: text_files_test.cc.
TEST_F(TextData, AFolderIsItsTextsWithAByteBetweenTwo) {
  write("data/a.txt", "first");
  write("data/c/d/e.md", "second");
  const std::string text = text_of(load("data"));
  EXPECT_TRUE(text == "first\0second"s || text == "second\0first"s) << text;
}

TEST_F(TextData, RefusesMissingAndEmptyData) {
  EXPECT_THAT(load_message(std::string(300, 'n')), HasSubstr("File name too long"));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_THAT(load_message("loop"), HasSubstr("a link leads back to itself"));
  EXPECT_THAT(load_message("missing"), AllOf(HasSubstr("missing"), HasSubstr("No such file")));
  write("empty.txt", "");
  EXPECT_THAT(load_message("empty.txt"), HasSubstr("empty.txt: the file is empty"));
  fs::create_directory(folder_ / "folder");
  EXPECT_THAT(load_message("folder"), HasSubstr("folder: no text files in the folder"));
  write("folder/binary", "\0"s);
  EXPECT_THAT(load_message("folder"), HasSubstr("no text files in the folder"));
}

TEST_F(TextData, ReadsTokenIdsOfTwoAndFourBytes) {
  write("ids.bin", "\x01\0\x02\0\xff\xff\0\0"s);
  const Tokens two = load_token_ids(folder_ / "ids.bin", 2, 65536);
  ASSERT_EQ(two.size(), 4);
  EXPECT_THAT((std::vector<int32_t>{two[0], two[1], two[2], two[3]}), ElementsAre(1, 2, 65535, 0));
  const Tokens four = load_token_ids(folder_ / "ids.bin", 4, 1 << 30);
  ASSERT_EQ(four.size(), 2);
  EXPECT_EQ(four[0], 0x00020001);
  EXPECT_EQ(four[1], 0xffff);
  const Tokens part = two.slice(1, 3);
  ASSERT_EQ(part.size(), 2);
  EXPECT_EQ(part[0], 2);
  EXPECT_EQ(part[1], 65535);
}

TEST_F(TextData, RefusesBadTokenIds) {
  write("ids.bin", "\x01\0\x02\0\xff\xff\0"s);
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", 2, 65536); }),
              HasSubstr("7 bytes are no whole number of 2-byte token ids"));
  write("ids.bin", "\x01\0\x02\0\xff\xff\0\x80"s);
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", 2, 1000); }),
              AllOf(HasSubstr("ids.bin: token 2 is id 65535"), HasSubstr("vocabulary has 1000")));
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", 4, 2147483647); }),
              HasSubstr("token 1 is id 2147549183"));
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", 3, 1000); }),
              HasSubstr("2 or 4 bytes, not 3"));
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "none.bin", 2, 1000); }),
              HasSubstr("No such file"));
  write("ids.bin", "");
  EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", 2, 1000); }),
              HasSubstr("the file is empty"));
  write("a.txt", "abc");
  EXPECT_THAT(error_message([&] { check_vocabulary(load("a.txt"), 98); }),
              HasSubstr("token 1 is id 98, but the vocabulary has 98 ids"));
  EXPECT_EQ(error_message([&] { check_vocabulary(load("a.txt"), 100); }), "");
}

TEST_F(TextData, RefusesFilesOfOtherKindsAsTokenIds) {
  const std::pair<std::string, const char*> files[] = {
      {"\x93NUMPY\x01\0\x76\0"s, "an array of NumPy"},
      {"\x1f\x8b\x08\0"s, "compressed by gzip"},
      {"PK\3\4"s, "a zip archive"},
      {"\x60\0\0\0\0\0\0\0{\"a\": 1}"s, "a checkpoint (safetensors)"},
      {std::string(64, 'x'), "a text, which --data reads"}};
  for (const auto& [start, kind] : files) {
    for (const int width : {2, 4}) {
      write("ids.bin", start + std::string(400, kind[2] == 't' ? 'y' : '\1').substr(start.size()));
      EXPECT_THAT(error_message([&] { load_token_ids(folder_ / "ids.bin", width, 1LL << 31); }),
                  AllOf(HasSubstr("ids.bin: the file has no token ids, it is"), HasSubstr(kind)));
    }
  }
  // Ids may begin as a file of two letters does, and small ones may be letters.
  write("ids.bin", "\xff\xfe\x01\0\x1f\x8b\x09\0"s);
  EXPECT_EQ(load_token_ids(folder_ / "ids.bin", 2, 65536).size(), 4);
  write("ids.bin", "abcd");
  EXPECT_EQ(load_token_ids(folder_ / "ids.bin", 2, 65536).size(), 2);
}

TEST_F(TextData, SplitsAtTheEnd) {
  write("a.txt", "0123456789");
  const Tokens tokens = load("a.txt");
  const TokenSplit split = split_tokens(tokens, 0.3, 2);
  EXPECT_EQ(text_of(split.train), "0123456");
  EXPECT_EQ(text_of(split.held_out), "789");
  const TokenSplit whole = split_tokens(tokens, 0, 9);
  EXPECT_EQ(whole.train.size(), 10);
  EXPECT_EQ(whole.held_out.size(), 0);
}

TEST_F(TextData, RefusesSplitsWithoutAWholeSequence) {
  write("a.txt", "0123456789");
  const Tokens tokens = load("a.txt");
  const auto message = [&](double share, int64_t sequence) {
    return error_message([&] { split_tokens(tokens, share, sequence); });
  };
  EXPECT_THAT(message(0, 10),
              AllOf(HasSubstr("a.txt: the data has 10 tokens"),
                    HasSubstr("a sequence of 10 needs 11 (give more data or shorter sequences)")));
  EXPECT_THAT(message(0.1, 2), AllOf(HasSubstr("the held-out part has 1 tokens"),
                                     HasSubstr("hold out more of it, or nothing")));
  EXPECT_THAT(message(0.8, 2), HasSubstr("the part for training has 2 tokens"));
  EXPECT_THAT(message(1, 2), HasSubstr("held-out share"));
  EXPECT_THAT(message(-0.1, 2), HasSubstr("held-out share"));
  EXPECT_THAT(message(0.1, 0), HasSubstr("at least 1 token"));
}

}  // namespace
}  // namespace coda::io
