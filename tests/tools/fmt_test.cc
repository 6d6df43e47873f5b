// SPDX-License-Identifier: Apache-2.0
// `coda fmt`: files are laid out in place and named; --check writes nothing; of several files none
// is written if one holds a mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/run_command.h"

namespace coda {
namespace fmt_command {
namespace {

using testing::HasSubstr;

constexpr const char* kLoose = "program p {\n store( y,tile( x[M,N] )*2 )  # twice\n}\n";
constexpr const char* kLaidOut = "program p {\n  store(y, tile(x[M, N]) * 2)  # twice\n}\n";

TEST(Fmt, LaysFilesOutInPlaceAndNamesThem) {
  const TestFolder folder;
  const std::string loose = folder.write("loose.coda", kLoose);
  const std::string tidy = folder.write("tidy.coda", kLaidOut);
  const CommandResult result = run_coda({"fmt", loose, tidy});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, loose + "\n");
  EXPECT_EQ(read_bytes(loose), kLaidOut);
  EXPECT_EQ(read_bytes(tidy), kLaidOut);
  EXPECT_EQ(run_coda({"fmt", loose, tidy}).out, "");
}

TEST(Fmt, OnlyChecksIfAsked) {
  const TestFolder folder;
  const std::string loose = folder.write("loose.coda", kLoose);
  const CommandResult result = run_coda({"fmt", "--check", loose});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, loose + "\n");
  EXPECT_THAT(result.err, HasSubstr("1 of 1 files are laid out otherwise: coda fmt FILE..."));
  EXPECT_EQ(read_bytes(loose), kLoose);
  EXPECT_EQ(run_coda({"fmt", "--check", folder.write("tidy.coda", kLaidOut)}).status, 0);
}

TEST(Fmt, AMistakeLeavesAllFilesAsTheyAre) {
  const TestFolder folder;
  const std::string loose = folder.write("loose.coda", kLoose);
  const std::string bad = folder.write("bad.coda", "program p {\n  store(y, x)\n}\n");
  const CommandResult result = run_coda({"fmt", loose, bad});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr(bad + ":2:12: error: 'x' has no value yet"));
  EXPECT_EQ(read_bytes(loose), kLoose);
}

}  // namespace
}  // namespace fmt_command
}  // namespace coda
