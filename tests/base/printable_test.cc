// SPDX-License-Identifier: Apache-2.0
// Foreign text in a message: one line, no escape codes, a few hundred bytes, and still UTF-8.
#include "coda/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace coda {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

TEST(Printable, TextStaysAndControlDoesNot) {
  EXPECT_EQ(printable("out/a b-\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.txt"s),
            "out/a b-\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80.txt");
  EXPECT_EQ(printable("\x1b[2J\n\t\0\x7f"s), "\\x1b[2J\\x0a\\x09\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"s), "\\xc2\\x9b") << "a control character of 8 bits";
  EXPECT_EQ(printable("\xe2\x80\xae"s), "\\xe2\\x80\\xae") << "right to left from here";
  EXPECT_EQ(in_quotes(""), "''");
}

TEST(Printable, BytesThatAreNoUtf8AreEscaped) {
  EXPECT_EQ(printable("\xff"s), "\\xff");
  EXPECT_EQ(printable("\xc3"s), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xc0\x80"s), "\\xc0\\x80") << "longer than it need be";
  EXPECT_EQ(printable("\xed\xa0\x80"s), "\\xed\\xa0\\x80") << "half of a pair of UTF-16";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"s), "\\xf4\\x90\\x80\\x80") << "beyond U+10FFFF";
}

TEST(Printable, ALongTextIsItsStartItsLengthAndItsEnd) {
  const std::string path = "/data/" + std::string(1000000, 'a') + "/name.txt";
  EXPECT_LE(printable(path).size(), 300u);
  EXPECT_THAT(printable(path), AllOf(StartsWith("/data/aaa"), HasSubstr("(1000015 bytes)"),
                                     EndsWith("aaa/name.txt")));
  EXPECT_EQ(printable(std::string(240, 'x')), std::string(240, 'x'));
}

TEST(Printable, AnyBytesBecomeOneShortLineThatIsUtf8) {
  std::mt19937 random(7);
  for (int run = 0; run < 3000; ++run) {
    std::string text(random() % 600, 0);
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? 0xe2 + random() % 4 : random());
    const std::string shown = printable(text);
    EXPECT_LE(shown.size(), 300u);
    EXPECT_EQ(without_escapes(shown), shown) << "nothing is left to escape";
  }
}

}  // namespace
}  // namespace coda
