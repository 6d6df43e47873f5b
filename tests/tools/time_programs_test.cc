// SPDX-License-Identifier: Apache-2.0
// lab/library/time_programs.py goes over all programs of programs/, here on the CPU at small sizes:
// a run that costs time on a GPU must not fail for what can be seen without one. (No figure is
// judged.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program/library_programs.h"
#include "tools/run_command.h"

namespace coda {
namespace time_programs {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Ran {
  int status = 0;
  std::string table;
  std::vector<json> rows;
};

Ran run_script(const TestFolder& folder, const std::string& arguments) {
  const std::string command =
      "python3 '" CODA_SOURCE_DIR "/lab/library/time_programs.py' --coda '" +
      std::string(CODA_COMMAND) + "' --device cpu --rounds 3 --seconds 0 " + arguments + " > '" +
      folder / "table" + "' 2> '" + folder / "log" + "'";
  Ran ran{
      .status = std::system(command.c_str()), .table = read_bytes(folder / "table"), .rows = {}};
  std::istringstream lines(read_bytes(folder / "out.jsonl"));
  for (std::string line; std::getline(lines, line);) ran.rows.push_back(json::parse(line));
  return ran;
}

std::string out_of(const TestFolder& folder) { return "--out '" + folder / "out.jsonl" + "'"; }

TEST(TimePrograms, EachOfTheLibraryStandsBesideItsProductItsOperationsAndItsBytes) {
  const TestFolder folder;
  const Ran ran = run_script(folder, out_of(folder));
  ASSERT_EQ(ran.status, 0) << ran.table << read_bytes(folder / "log");
  ASSERT_EQ(ran.rows.size(), tests::library_names().size());
  for (const json& row : ran.rows) {
    const Program program = tests::library_program(row["program"]);
    EXPECT_THAT(ran.table, HasSubstr("| " + program.name + " | "));
    std::set<std::string> names;
    for (const json& candidate : row["candidates"]) {
      names.insert(candidate["candidate"]);
      EXPECT_GT(candidate["interleaved_ms"], 0);
    }
    EXPECT_TRUE(names.contains("program") && names.contains("copy of as many bytes")) << row;
    EXPECT_EQ(names.contains("products alone"), row.contains("flops")) << row;
  }
  // What is there is not timed again; beside itself everything takes the library's time.
  const Ran again =
      run_script(folder, out_of(folder) + " --compare '" + folder / "out.jsonl" + "'");
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.rows, ran.rows);
  EXPECT_THAT(again.table,
              HasSubstr("median over the library's: 1.000 of " + std::to_string(ran.rows.size())));
}

// A file that is wrong has a row that says so, and the others are timed all the same.
TEST(TimePrograms, WhatFailsIsTold) {
  const TestFolder folder;
  const std::string wrong = folder.write("wrong.coda", "program wrong { store(y, tile(x[M, Q])) }");
  const Ran ran = run_script(
      folder, out_of(folder) + " '" + wrong + "' '" + tests::library_file("abs_max") + "'");
  EXPECT_NE(ran.status, 0);
  ASSERT_EQ(ran.rows.size(), 2U);
  EXPECT_THAT(ran.rows[0]["error"].get<std::string>(), HasSubstr("Q"));
  EXPECT_FALSE(ran.rows[1].contains("error"));
  EXPECT_THAT(ran.table, HasSubstr("| abs_max | "));
}

}  // namespace
}  // namespace time_programs
}  // namespace coda
