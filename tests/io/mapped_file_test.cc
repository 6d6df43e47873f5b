// SPDX-License-Identifier: Apache-2.0
// A mapping stays what it was when it was opened, also when the file is replaced.
#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ReadFile, SaysWhatIsWrong) {
  const TempFolder folder;
  EXPECT_THAT(error_message([&] { read_file(folder / "missing"); }),
              AllOf(HasSubstr("cannot read"), HasSubstr("missing: No such file")));
  EXPECT_THAT(error_message([&] { read_file(folder.path()); }), HasSubstr("Is a directory"));
  EXPECT_THAT(error_message([&] { read_file("/dev/zero"); }), HasSubstr("no regular file"));
}

}  // namespace
}  // namespace coda::io
