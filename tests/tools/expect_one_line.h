// SPDX-License-Identifier: Apache-2.0
// What every mistake of a user gets from the command: one line that says what to do.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tools/run_command.h"

namespace coda {

// The command ended with this status and printed one line to its standard error, which contains
// each of `said` and names no source of ours. Notes about repeated flags may precede the line.
inline void expect_one_line(const CommandResult& result, int status, const Words& said) {
  std::string line = result.err;
  while (line.starts_with("coda: note: --")) line.erase(0, line.find('\n') + 1);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << result.err;
  EXPECT_EQ(line.find("coda: "), 0u) << result.err;
  for (const char* ours : {"internal error", "/src/", ".cc:"})
    EXPECT_EQ(result.err.find(ours), std::string::npos) << result.err;
  for (const std::string& part : said) EXPECT_THAT(result.err, testing::HasSubstr(part));
}

}  // namespace coda
