// SPDX-License-Identifier: Apache-2.0
// A mapping stays what it was when it was opened, also when the file is replaced.
#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/atomic_file.h"
#include "io/error_message.h"
#include "io/temp_folder.h"

namespace coda::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MappedFile, AMappingOfTheOldFileStaysValid) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", std::string(100000, 'o'));
  const MappedFile old(folder / "a.txt");
  write_file_atomically(folder / "a.txt", "n");
  EXPECT_EQ(old.bytes().size(), 100000u);
  EXPECT_EQ(old.bytes()[99999], std::byte{'o'});
}

// Another program may shorten a file in place; reading beyond the new end would be SIGBUS.
TEST(MappedFile, AFileThatShrinksIsAnError) {
  constexpr size_t kSize = 100000;
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", std::string(kSize, 'o'));
  write_file_atomically(folder / "b.txt", std::string(kSize, 'o'));
  const MappedFile cut(folder / "a.txt");
  const MappedFile whole(folder / "b.txt");
  std::filesystem::resize_file(folder / "a.txt", 5000);
  EXPECT_EQ(cut.bytes()[4999], std::byte{'o'});
  EXPECT_EQ(error_message([&] { require_whole(cut.bytes()); }), "") << "not yet met";
  EXPECT_EQ(cut.bytes()[kSize - 1], std::byte{0});
  EXPECT_EQ(cut.bytes()[50000], std::byte{0});
  EXPECT_EQ(whole.bytes()[kSize - 1], std::byte{'o'});
  EXPECT_THAT(error_message([&] { require_whole(cut.bytes()); }),
              AllOf(HasSubstr("a.txt"), HasSubstr("shortened")));
  EXPECT_THAT(error_message([&] { require_whole(cut.bytes().subspan(kSize / 2, 10)); }),
              HasSubstr("shortened"));
  EXPECT_EQ(error_message([&] { require_whole(whole.bytes()); }), "");
}

TEST(MappedFile, APlaceThatIsMappedAgainIsWhole) {
  const TempFolder folder;
  for (int i = 0; i < 3; ++i) {
    write_file_atomically(folder / "a.txt", std::string(100000, 'o'));
    const MappedFile file(folder / "a.txt");
    EXPECT_EQ(error_message([&] { require_whole(file.bytes()); }), "");
    std::filesystem::resize_file(folder / "a.txt", 0);
    EXPECT_EQ(file.bytes()[0], std::byte{0});
    EXPECT_NE(error_message([&] { require_whole(file.bytes()); }), "");
  }
}

// A fault that is none of a mapped file's ends the process as before: by the signal, or where
// AddressSanitizer takes the signal by its report.
TEST(MappedFileDeathTest, OtherBusErrorsAreNotHidden) {
  const TempFolder folder;
  write_file_atomically(folder / "a.txt", "x");
  const MappedFile file(folder / "a.txt");
#ifdef __SANITIZE_ADDRESS__
  EXPECT_DEATH(::raise(SIGBUS), "AddressSanitizer: BUS");
#else
  EXPECT_EXIT(::raise(SIGBUS), ::testing::KilledBySignal(SIGBUS), "");
#endif
}

TEST(ReadFile, SaysWhatIsWrong) {
  const TempFolder folder;
  EXPECT_THAT(error_message([&] { read_file(folder / "missing"); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("missing: No such file")));
  EXPECT_THAT(error_message([&] { read_file(folder.path()); }), HasSubstr("Is a directory"));
  EXPECT_THAT(error_message([&] { read_file("/dev/zero"); }), HasSubstr("no regular file"));
}

}  // namespace
}  // namespace coda::io
