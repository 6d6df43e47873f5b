// SPDX-License-Identifier: Apache-2.0
// Processes that meet, leave, give up and die; each is forked from the test.
#include "collective/rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "coda/error.h"

namespace coda {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

struct Ended {
  std::vector<int> statuses;  // of the ranks; 128 + the signal that ended it
  std::string printed;        // on the standard errors of all
};

// work(rank, a socket that listens, the place) in a process for each rank.
Ended in_processes(int world, int absent,
                   const std::function<void(const ProcessPlace&, Socket)>& work) {
  Socket listening = listen_at("127.0.0.1", 0);
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world - absent; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      ProcessPlace place;
      place.rank = rank;
      place.world = world;
      place.address = "127.0.0.1";
      place.port = port_of(listening);
      place.patience = absent > 0 ? 1 : 20;
      if (rank > 0) listening.close();
      try {
        work(place, std::move(listening));
      } catch (const Error& error) {
        fprintf(stderr, "coda: %s\n", error.what());
        std::_Exit(1);
      }
      std::_Exit(0);
    }
    children.push_back(child);
  }
  close(ends[1]);
  listening.close();
  Ended ended;
  char piece[1000];
  for (ssize_t got = 1; (got = read(ends[0], piece, sizeof piece)) > 0;)
    ended.printed.append(piece, static_cast<size_t>(got));
  close(ends[0]);
  for (const pid_t child : children) {
    int state = 0;
    waitpid(child, &state, 0);
    ended.statuses.push_back(WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state));
  }
  return ended;
}

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Rendezvous, AllGetTheTokenAndLeave) {
  const Ended ended = in_processes(3, 0, [](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), "CPU", place.rank == 0 ? "a\0b" : "");
    require(all.token() == "a\0b", "another token");
    if (place.rank == 2) std::this_thread::sleep_for(1s);  // longer than those that have left
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0}));
}

// A launcher ends all once one has ended: rank 0 may still be writing.
TEST(Rendezvous, TheOthersLeaveBehindRank0) {
  const Ended ended = in_processes(2, 0, [](const ProcessPlace& place, Socket listening) {
    {
      const Rendezvous all(place, std::move(listening), "CPU", "");
      if (place.rank == 0) {
        std::this_thread::sleep_for(300ms);
        fprintf(stderr, "first ");
      }
    }
    if (place.rank == 1) fprintf(stderr, "second");
  });
  EXPECT_EQ(ended.printed, "first second");
}

TEST(Rendezvous, NamesARankThatDoesNotCome) {
  const Ended ended = in_processes(4, 2, [](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), "CPU", "");
  });
  EXPECT_THAT(ended.printed, HasSubstr("after 1 seconds rank 2, 3 of 4 has not come"));
  EXPECT_EQ(lines_of(ended.printed), 1);
  EXPECT_EQ(ended.statuses, (std::vector{1, 1}));
}

TEST(Rendezvous, NamesWhatDiffers) {
  const Ended ended = in_processes(3, 0, [](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), place.rank == 2 ? "NVIDIA T4" : "NVIDIA H200",
                         "");
  });
  EXPECT_THAT(ended.printed, AllOf(HasSubstr("rank 0 has NVIDIA H200 and rank 2 of 3"),
                                   HasSubstr("has NVIDIA T4: all must have the same")));
  EXPECT_EQ(lines_of(ended.printed), 1);
  EXPECT_EQ(ended.statuses, (std::vector{1, 1, 1}));
}

// Others may wait in a collective for ever: they end, and one of them says why.
TEST(Rendezvous, ARankThatDiesEndsAllWithOneLine) {
  for (const int dying : {0, 1, 2}) {
    const auto start = std::chrono::steady_clock::now();
    const Ended ended = in_processes(3, 0, [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      all.set_remedy("the last good checkpoint is X");
      std::this_thread::sleep_for(200ms);
      if (place.rank == dying) std::raise(SIGKILL);
      std::this_thread::sleep_for(60s);
    });
    EXPECT_THAT(ended.printed, AllOf(HasSubstr("coda: rank " + std::to_string(dying) + " of 3 ("),
                                     HasSubstr(") has ended; the last good checkpoint is X")));
    EXPECT_EQ(lines_of(ended.printed), 1);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ended.statuses[static_cast<size_t>(rank)], rank == dying ? 128 + SIGKILL : 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
  }
}

TEST(Rendezvous, WhatOneGivesUpForIsSaidOnce) {
  for (const std::vector<int>& failing : {std::vector{0}, {1}, {2}, {0, 1, 2}}) {
    const Ended ended = in_processes(3, 0, [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      if (std::count(failing.begin(), failing.end(), place.rank) == 0)
        std::this_thread::sleep_for(60s);
      all.fail("the disk is full");
      throw Error("the disk is full");
    });
    EXPECT_THAT(ended.printed, HasSubstr("the disk is full"));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses, (std::vector{1, 1, 1}));
  }
}

TEST(Rendezvous, AnExceptionThatNobodyToldCountsAsAnEnd) {
  const Ended ended = in_processes(2, 0, [&](const ProcessPlace& place, Socket listening) {
    Rendezvous all(place, std::move(listening), "CPU", "");
    if (place.rank == 0) std::this_thread::sleep_for(60s);
    throw Error("nobody is told");
  });
  EXPECT_THAT(ended.printed, HasSubstr("rank 1 of 2 ("));
  EXPECT_EQ(ended.statuses, (std::vector{1, 1}));
}

// Rank 0 takes what it wants when it wants, in pieces of its own; many more bytes than a connection
// holds.
TEST(Rendezvous, ManyBytesReachRank0InTheirOrder) {
  constexpr size_t kBytes = 20'000'003;
  const auto byte_of = [](int rank, size_t i) {
    return static_cast<std::byte>(i * static_cast<size_t>(rank) + i / 251);
  };
  const Ended ended = in_processes(3, 0, [&](const ProcessPlace& place, Socket listening) {
    Rendezvous all(place, std::move(listening), "CPU", "");
    std::vector<std::byte> bytes(kBytes);
    if (place.rank > 0) {
      for (size_t i = 0; i < kBytes; ++i) bytes[i] = byte_of(place.rank, i);
      all.send_to_first(std::span(bytes).first(7), {});
      all.send_to_first(std::span(bytes).subspan(7), {});
      return;
    }
    std::this_thread::sleep_for(200ms);
    for (const int rank : {2, 1}) {
      all.receive_from(rank, std::span(bytes).first(kBytes / 2));
      all.receive_from(rank, std::span(bytes).subspan(kBytes / 2));
      for (size_t i = 0; i < kBytes; ++i) require(bytes[i] == byte_of(rank, i), "another byte");
    }
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0}));
}

TEST(Rendezvous, WhoSendsGivesUpWhenItIsAskedTo) {
  const Ended ended = in_processes(2, 0, [&](const ProcessPlace& place, Socket listening) {
    Rendezvous all(place, std::move(listening), "CPU", "");
    if (place.rank == 0) return std::this_thread::sleep_for(2s);
    std::stop_source stop;
    std::jthread later([&] {
      std::this_thread::sleep_for(200ms);
      stop.request_stop();
    });
    const std::vector<std::byte> bytes(50'000'000);
    const auto start = std::chrono::steady_clock::now();
    try {
      all.send_to_first(bytes, stop.get_token());
    } catch (const Error&) {
      const auto waited = std::chrono::steady_clock::now() - start;
      require(waited < 1500ms, "it gave up when rank 0 had ended");
      return;
    }
    throw Error("all was sent");
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0}));
}

TEST(Rendezvous, APortThatIsTakenIsSaid) {
  const Socket first = listen_at("127.0.0.1", 0);
  try {
    listen_at("127.0.0.1", port_of(first));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 0 cannot listen at port"), HasSubstr("set MASTER_PORT")));
  }
}

// Whoever else connects does not keep the processes from meeting.
TEST(Rendezvous, AStrangerIsNotAnswered) {
  const Ended ended = in_processes(2, 0, [](const ProcessPlace& place, Socket listening) {
    if (place.rank == 1) {
      const Socket stranger =
          connect_until("127.0.0.1", place.port, std::chrono::steady_clock::now() + 10s);
      const Socket another =
          connect_until("127.0.0.1", place.port, std::chrono::steady_clock::now() + 10s);
      send_message(stranger, {'H', "GET / HTTP/1.1"});
      send_message(another, {'X', ""});
      const Rendezvous all(place, {}, "CPU", "");
    } else {
      const Rendezvous all(place, std::move(listening), "CPU", "");
    }
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0}));
}

}  // namespace
}  // namespace coda
