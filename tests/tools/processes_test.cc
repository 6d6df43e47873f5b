// SPDX-License-Identifier: Apache-2.0
// coda train in several processes on CPUs: the same bits each time and across a stop, another
// number of processes on the same run, and one line where one of them dies, is stopped, differs or
// gives up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "tools/run_command.h"

namespace coda {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// In a container tests run as root, and on fewer cores than processes.
constexpr const char* kMpirun =
    "OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 mpirun -q --bind-to none ";

class ProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += std::to_string(i % 50) + " ";
    data_ = folder_.write("text.txt", text);
  }

  Words train(const std::string& out, int processes, int steps) const {
    return {"train",
            "--device",
            "cpu",
            "--data",
            data_,
            "--out",
            folder_ / out,
            "--hidden",
            "32",
            "--layers",
            "2",
            "--heads",
            "4",
            "--batch",
            "6",
            "--sequence",
            "24",
            "--sample",
            "0",
            "--save-every",
            "20",
            "--steps",
            std::to_string(steps),
            "--processes",
            std::to_string(processes)};
  }
  Words resumed(const std::string& out, int processes) const {
    return {"train",       "--device", "cpu", "--data",   data_,         "--out",
            folder_ / out, "--sample", "0",   "--resume", "--processes", std::to_string(processes)};
  }
  std::string weights(const std::string& out) const {
    return read_bytes(fs::path(folder_ / out) / "latest/model.safetensors") +
           read_bytes(fs::path(folder_ / out) / "latest/optimizer.safetensors");
  }
  bool has(const std::string& out, const std::string& checkpoint) const {
    return fs::exists(fs::path(folder_ / out) / checkpoint);
  }
  // Waits until a run has its first checkpoint.
  void wait_for_first(pid_t child, const std::string& out) const {
    EXPECT_TRUE(wait_for_file(child, fs::path(folder_ / out) / "step-000020"));
  }

  std::string newest(const std::string& out) const {
    std::error_code error;
    return fs::read_symlink(fs::path(folder_ / out) / "latest", error).string();
  }
  // Waits until the newest checkpoint is no longer `before`. Then the training steps have begun, so
  // a signal only asks the run to stop. False if the run ends first.
  bool wait_for_another(pid_t child, const std::string& out, const std::string& before) const {
    return wait_until(child, [&] { return newest(out) != before; });
  }
  // Starts a run of 250 steps and stops it by a signal after its first checkpoint. If the run ends
  // before the signal arrives, starts it again.
  CommandResult stopped_at_first(const Words& words, const std::string& out, int signal) const {
    CommandOptions stopping;
    stopping.while_running = [&](pid_t child) {
      wait_for_first(child, out);
      kill(child, signal);
    };
    while (true) {
      CommandResult result = run_coda(words, stopping);
      if (!has(out, "step-000250")) return result;
      fs::remove_all(folder_ / out);
    }
  }

  // The standard errors of two processes under mpirun, of which rank 1 has other flags.
  std::string errors_where_rank_1_has(const Words& words, const Words& others) const {
    const auto line_of = [](const Words& all) {
      std::string line = CODA_COMMAND;
      for (const std::string& word : all) line += " '" + word + "'";
      return line;
    };
    const std::string script =
        folder_.write("rank.sh", "test $OMPI_COMM_WORLD_RANK = 1 && exec " + line_of(others) +
                                     "\nexec " + line_of(words) + "\n");
    const std::string command =
        kMpirun + ("-n 2 sh " + script + " > /dev/null 2> " + (folder_ / "err"));
    EXPECT_NE(std::system(command.c_str()), 0);
    return read_bytes(folder_ / "err");
  }

  TestFolder folder_;
  std::string data_;
};

// The command's children, by rank.
std::vector<pid_t> ranks_of(pid_t command) {
  std::ifstream file("/proc/" + std::to_string(command) + "/task/" + std::to_string(command) +
                     "/children");
  std::vector<pid_t> found;
  for (pid_t child = 0; file >> child;) found.push_back(child);
  return found;
}

int64_t line_count(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(ProcessesTest, GiveTheSameBitsEachTimeAndAfterAStop) {
  for (const int processes : {2, 3}) {
    const std::string n = std::to_string(processes);
    const CommandResult whole = run_coda(train("whole" + n, processes, 250));
    ASSERT_EQ(whole.status, 0) << whole.err;
    EXPECT_EQ(whole.err, "");
    EXPECT_THAT(whole.out, HasSubstr(n + " processes, " + std::to_string(6 / processes) +
                                     " sequences of a microbatch each"));
    EXPECT_EQ(whole.out.find("going on"), std::string::npos);

    const CommandResult stopped =
        stopped_at_first(train("stopped" + n, processes, 250), "stopped" + n, SIGINT);
    EXPECT_EQ(stopped.status, 130) << stopped.err;
    EXPECT_THAT(stopped.out,
                AllOf(HasSubstr("stopped after step"), HasSubstr("--resume --processes " + n)));
    const CommandResult rest = run_coda(resumed("stopped" + n, processes));
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_THAT(rest.out, HasSubstr("going on from"));
    EXPECT_EQ(weights("stopped" + n), weights("whole" + n));
  }
  EXPECT_NE(weights("whole2"), weights("whole3"));  // other sums: the bits are of a number
}

std::vector<std::pair<double, double>> losses_in(const std::string& state) {
  std::vector<std::pair<double, double>> losses;
  size_t at = state.find("\"train_losses\":[[") + 16;
  while (state[at] == '[') {
    char* end = nullptr;
    const double step = std::strtod(state.c_str() + at + 1, &end);
    losses.emplace_back(step, std::strtod(end + 1, &end));
    at = static_cast<size_t>(end - state.c_str()) + 1;
    if (state[at] == ',') ++at;
  }
  return losses;
}

// The data of a step do not depend on the number, so losses are the same within rounding.
TEST_F(ProcessesTest, ARunGoesOnWithAnotherNumber) {
  const Words slow = {"--lr", "0.0005"};  // so that roundings do not grow
  EXPECT_EQ(stopped_at_first(train("run", 2, 250) + slow, "run", SIGTERM).status, 130);
  EXPECT_THAT(run_coda(resumed("run", 1) + Words{"--batch", "4"}).err,
              HasSubstr("--batch 4 and --accumulate 1: a step of this run has 6 sequences"));
  for (const int processes : {3, 1}) {
    CommandOptions again;
    const std::string before = newest("run");
    again.while_running = [&](pid_t child) {
      wait_for_another(child, "run", before);
      kill(child, SIGTERM);
    };
    const Words split = processes == 1 ? Words{"--batch", "2", "--accumulate", "3"} : Words{};
    const CommandResult result = run_coda(resumed("run", processes) + split, again);
    // Once all is saved, a signal ends the command at once.
    const bool is_late = result.status == 128 + SIGTERM && has("run", "step-000250");
    EXPECT_TRUE(result.status == 130 || result.status == 0 || is_late)
        << result.status << " " << result.err;
  }
  const auto losses = losses_in(read_bytes(fs::path(folder_ / "run") / "latest/run_state.json"));
  ASSERT_GT(losses.size(), 10u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i].first, i + 1.0);
  const CommandResult whole = run_coda(train("whole", 1, 250) + slow);
  ASSERT_EQ(whole.status, 0) << whole.err;
  const auto wanted = losses_in(read_bytes(fs::path(folder_ / "whole") / "latest/run_state.json"));
  for (size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i].second, wanted[i].second, 1e-3 * wanted[i].second) << i;
}

TEST_F(ProcessesTest, OneThatDiesEndsAllWithOneLine) {
  for (const size_t dying : {0u, 1u, 2u}) {
    const std::string out = "run" + std::to_string(dying);
    CommandOptions killing;
    killing.while_running = [&](pid_t child) {
      wait_for_first(child, out);
      const std::vector<pid_t> ranks = ranks_of(child);
      ASSERT_EQ(ranks.size(), 3u);
      kill(ranks[dying], SIGKILL);
    };
    const CommandResult result = run_coda(train(out, 3, 100000), killing);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err, AllOf(HasSubstr("coda: rank " + std::to_string(dying) + " of 3 ("),
                                  HasSubstr(") has ended")));
    EXPECT_EQ(line_count(result.err), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(dying > 0 ? "; the last good checkpoint is "
                                                : "; continue from the newest checkpoint in "));
    // And it is whole.
    CommandOptions stopping;
    const std::string before = newest(out);
    stopping.while_running = [&](pid_t child) {
      EXPECT_TRUE(wait_for_another(child, out, before));
      kill(child, SIGTERM);
    };
    EXPECT_EQ(run_coda(resumed(out, 1), stopping).status, 130);
  }
}

// It closes no connection, so the others notice its silence.
TEST_F(ProcessesTest, OneThatIsStoppedIsNamedAndEndsAll) {
  for (const size_t stopped : {0u, 1u}) {
    const std::string out = "run" + std::to_string(stopped);
    CommandOptions stopping;
    stopping.environment["CODA_SILENT_SECONDS"] = "3";
    stopping.while_running = [&](pid_t child) {
      wait_for_first(child, out);
      const std::vector<pid_t> ranks = ranks_of(child);
      ASSERT_EQ(ranks.size(), 2u);
      kill(ranks[stopped], SIGSTOP);
    };
    const CommandResult result = run_coda(train(out, 2, 100000), stopping);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("coda: rank " + std::to_string(stopped) + " of 2 ("),
                      HasSubstr(") has been silent for 3 seconds"),
                      HasSubstr(stopped > 0 ? "; the last good checkpoint is "
                                            : "; continue from the newest checkpoint")));
    EXPECT_EQ(line_count(result.err), 1) << result.err;
  }
}

TEST_F(ProcessesTest, RanksThatDifferAreNamedAtTheStart) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const Words own = train("run", 1, 20);
  const std::pair<Words, std::string> cases[] = {
      {{"--seed", "2"}, "--seed '2' and rank 0 has '1'"},
      {{"--lr", "0.1"}, "--lr '0.1' and rank 0 has none"},
      {{"--eval-every", "3"}, "--eval-every '3' and rank 0 has none"},
      {{"--overwrite"}, "--overwrite 'true' and rank 0 has none"}};
  for (const auto& [more, text] : cases) {
    const std::string errors = errors_where_rank_1_has(own, own + more);
    EXPECT_THAT(errors, AllOf(HasSubstr("coda: rank 1 of 2 ("), HasSubstr(") has " + text)));
    EXPECT_EQ(line_count(errors), 1) << errors;
  }
  // Flags that are there already, with other values.
  const std::pair<std::string, std::string> changes[] = {
      {"--steps", "30"}, {"--save-every", "7"}, {"--layers", "3"}};
  for (const auto& [flag, value] : changes) {
    Words others = own;
    *(std::find(others.begin(), others.end(), flag) + 1) = value;
    EXPECT_THAT(errors_where_rank_1_has(own, others), HasSubstr(flag + " '" + value + "'"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  // The same flags, and other files behind them.
  Words others = own;
  *(std::find(others.begin(), others.end(), "--data") + 1) =
      folder_.write("other.txt", read_bytes(data_) + "1");
  EXPECT_THAT(errors_where_rank_1_has(own, others), HasSubstr("data whose digest is"));
}

TEST_F(ProcessesTest, RanksOfOtherCheckpointsAreNamed) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  ASSERT_EQ(run_coda(train("run", 1, 40)).status, 0);
  const fs::path run = folder_ / "run";
  fs::copy(run, folder_ / "older", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  fs::remove_all(fs::path(folder_ / "older") / "step-000040");
  EXPECT_THAT(errors_where_rank_1_has(resumed("run", 1), resumed("older", 1)),
              HasSubstr("the checkpoint 'step-000020' and rank 0 has 'step-000040'"));
}

// Of a process and all that it started.
void add_sockets_of(pid_t process, std::set<std::string>& sockets) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::error_code gone;
  for (const auto& file : fs::directory_iterator(folder + "/fd", gone))
    sockets.insert(fs::read_symlink(file.path(), gone).string());
  for (const auto& thread : fs::directory_iterator(folder + "/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) add_sockets_of(child, sockets);
  }
}

TEST_F(ProcessesTest, NobodyListensOnceTheyHaveMet) {
  std::set<std::string> places;
  CommandOptions looking;
  looking.while_running = [&](pid_t child) {
    wait_for_first(child, "run");
    std::set<std::string> sockets;
    add_sockets_of(child, sockets);
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream lines(table);
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string number, local, remote, state, skipped, inode;
        words >> number >> local >> remote >> state;
        for (int i = 0; i < 5; ++i) words >> skipped;
        words >> inode;
        if (state == "0A" && sockets.contains("socket:[" + inode + "]"))
          places.insert(local.substr(0, local.find(':')));
      }
    }
    kill(child, SIGTERM);
  };
  EXPECT_EQ(run_coda(train("run", 2, 100000), looking).status, 130);
  EXPECT_THAT(places, testing::IsEmpty());  // they have met
}

TEST_F(ProcessesTest, WhatIsWrongIsSaidOnce) {
  const auto refused = [&](const Words& words) {
    const CommandResult result = run_coda(words);
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(line_count(result.err), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused(train("a", 4, 10)),
              HasSubstr("6 sequences cannot be divided among 4 processes"));
  Words without_data = train("a", 2, 10);
  *(std::ranges::find(without_data, "--data") + 1) = "none.txt";
  EXPECT_THAT(refused(without_data), HasSubstr("none.txt"));
  EXPECT_THAT(refused(train("a", 2, 10) + Words{"--gpus", "2"}), HasSubstr("give one of them"));
  Words on_gpus = train("a", 2, 10);
  *(std::ranges::find(on_gpus, "--device") + 1) = "gpu";
  EXPECT_THAT(refused(on_gpus), HasSubstr("is for CPUs"));
  // Of rank 0 alone, while the others wait for it.
  EXPECT_THAT(refused(train("text.txt/run", 2, 10)), HasSubstr("text.txt/run"));
  EXPECT_THAT(refused(train("b", 2, 250) + Words{"--lr", "1e6", "--warmup", "0", "--clip", "0"}),
              AllOf(HasSubstr("not finite"), HasSubstr("the last good checkpoint is")));
}

// A port at which nobody listens. The system does not give it to another process for a while.
std::string free_port() {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(listening);
  return std::to_string(ntohs(address.sin_port));
}

// Of GPUs, with a fake of the driver and of NCCL: what comes before the first kernel.
TEST_F(ProcessesTest, OnGpusWhatIsMissingIsNamed) {
  CommandOptions options;
  options.environment = {{"CODA_CUDA_DRIVER", CODA_FAKE_CUDA}, {"CODA_NCCL", CODA_FAKE_CUDA}};
  const Words words = {"train", "--data", data_, "--out", folder_ / "a"};
  const auto message = [&](const Words& more) {
    const CommandResult result = run_coda(words + more, options);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(line_count(result.err), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(message({"--gpus", "2"}), HasSubstr("--gpus 2: this process may use 1"));
  options.environment.insert({{"RANK", "0"},
                              {"WORLD_SIZE", "3"},
                              {"CODA_JOIN_SECONDS", "1"},
                              {"CODA_JOIN_SECRET", "what the launcher has made"}});
  EXPECT_THAT(message({}), HasSubstr("set MASTER_ADDR"));
  options.environment["MASTER_ADDR"] = "127.0.0.1";
  const std::string port = free_port();
  options.environment["MASTER_PORT"] = port;
  EXPECT_THAT(message({}), HasSubstr("after 1 seconds rank 1, 2 of 3 has not joined rank 0"));
  options.environment["RANK"] = "1";
  EXPECT_THAT(message({}),
              AllOf(HasSubstr("rank 1: cannot reach rank 0 at 127.0.0.1, port " + port),
                    HasSubstr("MASTER_ADDR and MASTER_PORT")));
  options.environment["WORLD_SIZE"] = "1";
  EXPECT_THAT(message({}), HasSubstr("ranks count from 0"));
}

}  // namespace
}  // namespace coda
