// SPDX-License-Identifier: Apache-2.0
// Which process this is, as each launcher says it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "coda/communicator.h"
#include "coda/error.h"

namespace coda {
namespace {

using testing::HasSubstr;

class ProcessPlaceTest : public testing::Test {
 protected:
  ~ProcessPlaceTest() override { clear(); }
  ProcessPlaceTest() { clear(); }

  static void clear() {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_LOCALID",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_NTASKS",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "CODA_JOIN_SECONDS",
                             "CODA_SILENT_SECONDS",
                             "CODA_JOIN_SECRET",
                             "CODA_JOIN_OPEN",
                             "CODA_SHARED_MEMORY"})
      unsetenv(name);
  }
  static ProcessPlace with(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return process_place();
  }
  static std::string refusal(const std::map<std::string, std::string>& variables) {
    try {
      with(variables);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ProcessPlaceTest, WithoutALauncherThereIsOneProcess) {
  const ProcessPlace place = with({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.world, 1);
}

TEST_F(ProcessPlaceTest, OfTorchrun) {
  const ProcessPlace place = with({{"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"MASTER_ADDR", "node0"},
                                   {"MASTER_PORT", "1234"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.world, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "node0");
  EXPECT_EQ(place.port, 1235);  // its own store has 1234
}

TEST_F(ProcessPlaceTest, OfMpirunOnOneMachine) {
  const ProcessPlace place = with({{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "2"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.world, 2);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "127.0.0.1");
  EXPECT_EQ(place.port, 29500);
}

TEST_F(ProcessPlaceTest, OfSrunAndNotOfABatchScript) {
  const std::map<std::string, std::string> script = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  EXPECT_EQ(with(script).world, 1);
  auto task = script;
  task.insert({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}});
  task["SLURM_PROCID"] = "3";
  const ProcessPlace place = with(task);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.world, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.address, "");
}

TEST_F(ProcessPlaceTest, HowLongToWaitAndWhoMayJoinIsSetByTheUser) {
  const ProcessPlace usual = with({});
  EXPECT_EQ(usual.patience, 60);
  EXPECT_EQ(usual.silence, 60);
  EXPECT_EQ(usual.secret, "");
  EXPECT_FALSE(usual.is_open);
  EXPECT_EQ(usual.shared_memory, -1);
  const ProcessPlace place = with({{"CODA_JOIN_SECONDS", "5"},
                                   {"CODA_SILENT_SECONDS", "7"},
                                   {"CODA_JOIN_SECRET", "sixteen of these"},
                                   {"CODA_JOIN_OPEN", "1"},
                                   {"CODA_SHARED_MEMORY", "5"}});
  EXPECT_EQ(place.patience, 5);
  EXPECT_EQ(place.silence, 7);
  EXPECT_EQ(place.secret, "sixteen of these");
  EXPECT_TRUE(place.is_open);
  EXPECT_EQ(place.shared_memory, 5);
  EXPECT_FALSE(with({{"CODA_JOIN_OPEN", "0"}}).is_open);
  EXPECT_THAT(refusal({{"CODA_JOIN_SECRET", "fifteen of them"}}),
              HasSubstr("CODA_JOIN_SECRET is shorter than 16 characters"));
  EXPECT_THAT(refusal({{"CODA_SILENT_SECONDS", "0"}}), HasSubstr("CODA_SILENT_SECONDS is '0'"));
}

TEST_F(ProcessPlaceTest, WhatIsNoRankIsRefused) {
  EXPECT_THAT(refusal({{"RANK", "two"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is 'two'"));
  EXPECT_THAT(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("ranks count from 0"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "-1"}}),
              HasSubstr("MASTER_PORT"));
}

}  // namespace
}  // namespace coda
