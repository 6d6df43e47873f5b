// SPDX-License-Identifier: Apache-2.0
// Each program of programs/ computes the formula in its comments and is right on the CPU, at sizes
// that fill tiles, ragged and tiny ones, and so is each program of the backward that `coda derive`
// writes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "coda/graph_text.h"
#include "program/library_programs.h"
#include "tools/run_command.h"

namespace coda {
namespace library_command {
namespace {

using testing::HasSubstr;
using testing::Not;

class LibraryCommand : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Programs, LibraryCommand, testing::ValuesIn(tests::library_names()),
                         tests::name_of_library_test);

// The lines of comments that are indented, in NumPy's words.
std::string formula_of(const std::string& file) {
  const std::string mark = "#     ";
  std::istringstream lines(read_bytes(file));
  std::string formula;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(mark)) formula += line.substr(mark.size()) + "\n";
  return formula;
}

TEST_P(LibraryCommand, ComputesItsFormulaAtSizesThatFillTilesRaggedAndTiny) {
  const CommandResult result =
      run_coda({"check", tests::library_file(GetParam()), "--backend", "cpu", "--formula",
                formula_of(tests::library_file(GetParam()))});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
  EXPECT_THAT(result.out, Not(HasSubstr("not compared")));
  EXPECT_THAT(result.out, HasSubstr("well formed"));
  EXPECT_THAT(result.out, Not(HasSubstr("elements are not finite")));
  EXPECT_THAT(result.out, HasSubstr("the same bits in two runs and 4 configurations"));
  EXPECT_THAT(result.out, Not(HasSubstr("WRONG")));
  size_t sizes = 0;
  for (size_t at = 0; (at = result.out.find("\nsizes ", at)) != std::string::npos; ++at) ++sizes;
  EXPECT_GE(sizes, 6U) << result.out;  // with those of the backward
}

TEST(Ladder, TheTextsOfEachStepComputeTheirFormulas) {
  int texts = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(CODA_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".coda") continue;
    if (is_graph_text(read_bytes(entry.path()))) continue;  // graph_files_test.cc
    const CommandResult result = run_coda({"check", entry.path(), "--backend", "cpu", "--brief",
                                           "--formula", formula_of(entry.path())});
    EXPECT_EQ(result.status, 0) << entry.path() << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("The program computes what is wanted"));
    ++texts;
  }
  EXPECT_GE(texts, 13);
}

// The programs of the last step are a block together.
TEST(Ladder, TheTextsOfTheBlockComputeTheBlock) {
  const std::string folder = CODA_SOURCE_DIR "/examples/08_block/";
  const CommandResult result =
      run_coda({"check", folder + "statistics.coda", folder + "scale.coda", folder + "up_gate.coda",
                folder + "down.coda", "--backend", "cpu", "--brief", "--formula",
                "n = x / sqrt(sum(x ** 2, axis=1) * inv_d + 1e-5)[:, None] * norm\n"
                "y = x + (silu(n @ gate.T) * (n @ up.T)) @ down.T"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
}

TEST_P(LibraryCommand, HasABackwardThatIsComputedAsItSays) {
  const TestFolder folder;
  Words derive{"derive", "--out", folder / "backward"};
  for (const std::string& name : tests::with_makers(GetParam()))
    derive.push_back(tests::library_file(name));
  const CommandResult derived = run_coda(derive);
  ASSERT_EQ(derived.status, 0) << derived.err;
  Words check{"check", "--backend", "cpu", "--brief", "--configurations", "2"};
  for (const auto& entry : std::filesystem::directory_iterator(folder / "backward"))
    check.push_back(entry.path());
  EXPECT_GE(check.size(), 7U) << "no backward";
  const CommandResult checked = run_coda(check);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
}

}  // namespace
}  // namespace library_command
}  // namespace coda
