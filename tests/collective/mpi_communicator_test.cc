// SPDX-License-Identifier: Apache-2.0
// What processes exchange over Open MPI. mpirun starts this program anew for each rank, to run the
// test of one rank below.
#include "collective/mpi_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "coda/error.h"

namespace coda {
namespace {

// In a container the tests run as root, and on fewer cores than ranks.
constexpr const char* kMpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp mpirun --bind-to none -q ";

std::vector<float> values_of(int rank, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> any;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = any(random);
  return values;
}

// Each element's sum in the order of the ranks, and one's own largest, bit for bit: an order that
// a library chose would differ somewhere.
void check_a_rank() {
  const ProcessPlace place = process_place();
  const auto communicator = join_over_mpi(place);
  const int world = communicator->world();
  const int rank = communicator->rank();
  ASSERT_EQ(world, place.world);
  // More than a piece of what travels at once, and a ragged one.
  for (const int64_t cols : {1, 37, 300000}) {
    const int64_t rows = 2 * world;
    std::vector<std::vector<float>> all;
    for (int r = 0; r < world; ++r) all.push_back(values_of(r, rows * cols));
    const int64_t block = 2 * cols;
    std::vector<float> summed = all[static_cast<size_t>(rank)];
    communicator->reduce_scatter(dense_view(summed.data(), DType::f32, rows, cols));
    for (int64_t i = block * rank; i < block * (rank + 1); ++i) {
      float sum = all[0][static_cast<size_t>(i)];
      for (int r = 1; r < world; ++r) sum += all[static_cast<size_t>(r)][static_cast<size_t>(i)];
      ASSERT_EQ(summed[static_cast<size_t>(i)], sum) << i;
    }

    std::vector<float> gathered = all[static_cast<size_t>(rank)];
    communicator->all_gather(dense_view(gathered.data(), DType::f32, rows, cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto owner = static_cast<size_t>(i / block);
      ASSERT_EQ(gathered[static_cast<size_t>(i)], all[owner][static_cast<size_t>(i)]) << i;
    }

    std::vector<float> largest = all[static_cast<size_t>(rank)];
    communicator->maximum(dense_view(largest.data(), DType::f32, rows, cols));
    for (size_t i = 0; i < largest.size(); ++i) {
      float expected = all[0][i];
      for (const auto& values : all) expected = std::max(expected, values[i]);
      ASSERT_EQ(largest[i], expected) << i;
    }
  }
  std::vector<uint16_t> halves(static_cast<size_t>(world), static_cast<uint16_t>(rank));
  communicator->all_gather(dense_view(halves.data(), DType::bf16, world, 1));
  for (int r = 0; r < world; ++r) EXPECT_EQ(halves[static_cast<size_t>(r)], r);
}

TEST(MpiCommunicator, SumsInTheOrderOfTheRanksAndGathers) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return check_a_rank();
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
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

// Each way of it: another function, another size, one exchange more. None waits for ever.
void be_out_of_step(const std::string& how) {
  const ProcessPlace place = process_place();
  const auto communicator = join_over_mpi(place);
  std::vector<float> values(400'000);
  const auto matrix = [&](int64_t rows) { return dense_view(values.data(), DType::f32, rows, 2); };
  communicator->all_gather(matrix(2));
  if (place.rank == 1) {
    if (how == "function") communicator->all_gather(matrix(4));
    if (how == "size") communicator->reduce_scatter(matrix(200'000));
    if (how == "leave") return;
  }
  communicator->reduce_scatter(matrix(4));
  communicator->all_gather(matrix(4));
}

TEST(MpiCommunicator, RanksOutOfStepEndWithALine) {
  if (const char* how = std::getenv("CODA_TEST_HOW")) return be_out_of_step(how);
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::pair<std::string, std::string> cases[] = {
      {"function", "its exchange 2 is all_gather of 8 f32, and rank 0's is reduce_scatter of 8 f32"},
      {"size", "its exchange 2 is reduce_scatter of 400000 f32, and rank 0's is reduce_scatter"},
      {"leave", "has left after its exchange 1, and rank 0 goes on with reduce_scatter of 8 f32"}};
  for (const auto& [how, line] : cases) {
    const std::string output =
        errors_of("CODA_TEST_HOW=" + how + " " + kMpirun + "-n 2 " + self +
                  " --gtest_brief=1 --gtest_filter=MpiCommunicator.RanksOutOfStep*");
    EXPECT_THAT(output, testing::HasSubstr("coda: rank 1 of 2 ("));
    EXPECT_THAT(output, testing::HasSubstr(line));
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  }
}

TEST(MpiCommunicator, ProcessesThatMpirunDidNotStartAreRefused) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
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
