// SPDX-License-Identifier: Apache-2.0
// What processes of one machine exchange over memory that they share.
#include "collective/memory_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "collective/exchanges.h"
#include "collective/processes.h"

namespace coda {
namespace {

using testing::HasSubstr;

// Rank 0 listens by itself, at the port that the test has found free.
Ended over_memory(int world, const std::function<void(Communicator&)>& work) {
  Started started{.world = world};
  started.place.secret = "what the launcher has made";
  started.place.shared_memory = make_shared_memory(world);
  const int port = port_of(listen_at("127.0.0.1", 0));
  const Ended ended = in_processes(started, [&](ProcessPlace place, Socket) {
    place.port = port;
    const auto communicator = join_over_memory(place);
    work(*communicator);
    require(!testing::Test::HasFailure(), "an expectation failed");
  });
  close(started.place.shared_memory);
  return ended;
}

TEST(MemoryCommunicator, SumsInTheOrderOfTheRanksAndGathers) {
  for (const int world : {2, 3}) {
    const Ended ended = over_memory(world, check_exchanges);
    EXPECT_EQ(ended.statuses, std::vector<int>(static_cast<size_t>(world))) << ended.printed;
    EXPECT_EQ(ended.printed, "");
  }
}

// Many small exchanges behind one another: none sees what the next one's processes show.
TEST(MemoryCommunicator, KeepsExchangesApart) {
  const Ended ended = over_memory(3, [](Communicator& all) {
    for (int i = 0; i < 3000; ++i) {
      std::vector<float> values(3, static_cast<float>(i * 3 + all.rank()));
      all.all_gather(dense_view(values.data(), DType::f32, 3, 1));
      for (int r = 0; r < 3; ++r)
        require(values[static_cast<size_t>(r)] == static_cast<float>(i * 3 + r), "another's value");
    }
  });
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0})) << ended.printed;
}

TEST(MemoryCommunicator, RanksOutOfStepEndWithALine) {
  for (const auto& [how, line] : kOutOfStep) {
    const Ended ended =
        over_memory(2, [how = how](Communicator& all) { be_out_of_step(all, how); });
    EXPECT_THAT(ended.printed, HasSubstr("coda: rank 1 of 2 ("));
    EXPECT_THAT(ended.printed, HasSubstr(line));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses[0], 1);
  }
}

TEST(MemoryCommunicator, MemoryOfOtherProcessesIsRefused) {
  ProcessPlace place;
  place.world = 2;
  place.shared_memory = make_shared_memory(3);
  for (const int descriptor : {place.shared_memory, 999}) {
    place.shared_memory = descriptor;
    try {
      join_over_memory(place);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("which is no memory for 2 processes"));
    }
  }
  EXPECT_THROW(make_shared_memory(5000), Error);
}

}  // namespace
}  // namespace coda
