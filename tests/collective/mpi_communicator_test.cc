// SPDX-License-Identifier: Apache-2.0
// What processes exchange over Open MPI. mpirun starts this program anew for each rank, to run the
// test of one rank below.
#include "collective/mpi_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "coda/error.h"
#include "collective/exchanges.h"

namespace coda {
namespace {

// In a container the tests run as root, and on fewer cores than ranks.
constexpr const char* kMpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp mpirun --bind-to none -q ";

class MpiCommunicator : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun > /dev/null") != 0)
      GTEST_SKIP() << "Open MPI's mpirun is not installed (scripts/setup.sh judges)";
  }
};

TEST_F(MpiCommunicator, SumsInTheOrderOfTheRanksAndGathers) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    const auto communicator = join_over_mpi(process_place());
    EXPECT_EQ(communicator->world(), process_place().world);
    return check_exchanges(*communicator);
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const int world : {2, 3}) {
    const std::string command = kMpirun + ("-n " + std::to_string(world)) + " " + self +
                                " --gtest_brief=1 --gtest_filter=MpiCommunicator.Sums*";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

std::string errors_of(const std::string& command) {
  std::string output;
  FILE* const pipe = popen((command + " 2>&1 >/dev/null").c_str(), "r");
  char piece[1000];
  for (size_t got = 1; (got = fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, got);
  EXPECT_NE(pclose(pipe), 0);
  return output;
}

TEST_F(MpiCommunicator, RanksOutOfStepEndWithALine) {
  if (const char* how = std::getenv("CODA_TEST_HOW")) {
    const auto communicator = join_over_mpi(process_place());
    return be_out_of_step(*communicator, how);
  }
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const auto& [how, line] : kOutOfStep) {
    const std::string output =
        errors_of("CODA_TEST_HOW=" + std::string(how) + " " + kMpirun + "-n 2 " + self +
                  " --gtest_brief=1 --gtest_filter=MpiCommunicator.RanksOutOfStep*");
    EXPECT_THAT(output, testing::HasSubstr("coda: rank 1 of 2 ("));
    EXPECT_THAT(output, testing::HasSubstr(line));
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  }
}

TEST_F(MpiCommunicator, ProcessesThatMpirunDidNotStartAreRefused) {
  EXPECT_EXIT(
      {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        ProcessPlace place;
        place.rank = 1;
        place.world = 2;
        try {
          join_over_mpi(place);
        } catch (const Error& error) {
          fprintf(stderr, "%s\n", error.what());
          std::_Exit(3);
        }
      },
      testing::ExitedWithCode(3), "rank 1 of 2, but to MPI rank 0 of 1");
}

}  // namespace
}  // namespace coda
