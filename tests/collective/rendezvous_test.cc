// SPDX-License-Identifier: Apache-2.0
// Processes that meet, leave, give up and die; each is forked from the test.
#include "collective/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "coda/error.h"
#include "collective/meeting.h"
#include "collective/processes.h"
#include "collective/protocol.h"

namespace coda {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

Started of(int world, int absent = 0) { return {.world = world, .absent = absent}; }

TEST(Rendezvous, AllGetTheTokenAndLeave) {
  const Ended ended = in_processes(of(3), [](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), "CPU", place.rank == 0 ? "a\0b" : "");
    require(all.token() == "a\0b", "another token");
    if (place.rank == 2) std::this_thread::sleep_for(1s);  // longer than those that have left
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0}));
}

// A launcher ends all once one has ended: rank 0 may still be writing.
TEST(Rendezvous, TheOthersLeaveBehindRank0) {
  const Ended ended = in_processes(of(2), [](const ProcessPlace& place, Socket listening) {
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
  const Ended ended = in_processes(of(4, 2), [](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), "CPU", "");
  });
  EXPECT_THAT(ended.printed, HasSubstr("after 1 seconds rank 2, 3 of 4 has not joined"));
  EXPECT_EQ(lines_of(ended.printed), 1);
  EXPECT_EQ(ended.statuses, (std::vector{1, 1}));
}

TEST(Rendezvous, NamesWhatDiffers) {
  const Ended ended = in_processes(of(3), [](const ProcessPlace& place, Socket listening) {
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
    const Ended ended = in_processes(of(3), [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      all.set_remedy("the last good checkpoint is X");
      std::this_thread::sleep_for(200ms);
      if (place.rank == dying) std::raise(SIGKILL);
      wait_for_the_end();
    });
    EXPECT_THAT(ended.printed, AllOf(HasSubstr("coda: rank " + std::to_string(dying) + " of 3 ("),
                                     HasSubstr(") has ended; the last good checkpoint is X")));
    EXPECT_EQ(lines_of(ended.printed), 1);
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ended.statuses[static_cast<size_t>(rank)], rank == dying ? 128 + SIGKILL : 1);
  }
}

TEST(Rendezvous, WhatOneGivesUpForIsSaidOnce) {
  for (const std::vector<int>& failing : {std::vector{0}, {1}, {2}, {0, 1, 2}}) {
    const Ended ended = in_processes(of(3), [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      if (std::count(failing.begin(), failing.end(), place.rank) == 0) wait_for_the_end();
      all.fail("the disk is full");
      throw Error("the disk is full");
    });
    EXPECT_THAT(ended.printed, HasSubstr("the disk is full"));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses, (std::vector{1, 1, 1}));
  }
}

TEST(Rendezvous, AnExceptionThatNobodyToldCountsAsAnEnd) {
  const Ended ended = in_processes(of(2), [&](const ProcessPlace& place, Socket listening) {
    Rendezvous all(place, std::move(listening), "CPU", "");
    if (place.rank == 0) wait_for_the_end();
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
  const Ended ended = in_processes(of(3), [&](const ProcessPlace& place, Socket listening) {
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

// Rank 0 takes nothing until rank 1 has given up.
TEST(Rendezvous, WhoSendsGivesUpWhenItIsAskedTo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Ended ended = in_processes(of(2), [&](const ProcessPlace& place, Socket listening) {
    Rendezvous all(place, std::move(listening), "CPU", "");
    char given_up = 'n';
    if (place.rank == 0)
      return require(read(ends[0], &given_up, 1) == 1 && given_up == 'y', "rank 1 did not say so");
    std::stop_source stop;
    std::jthread later([&] {
      std::this_thread::sleep_for(200ms);
      stop.request_stop();
    });
    const std::vector<std::byte> bytes(50'000'000);
    try {
      all.send_to_first(bytes, stop.get_token());
    } catch (const Error&) {
      given_up = 'y';
    }
    require(write(ends[1], &given_up, 1) == 1, "rank 0 cannot be told");
  });
  for (const int end : ends) close(end);
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0}));
}

// SIGSTOP ends nothing and closes nothing: the others notice that nothing is said.
TEST(Rendezvous, ARankThatIsStoppedIsNamedAndTheOthersEnd) {
  for (const size_t stopped : {0u, 1u, 2u}) {
    Started started = of(3);
    started.place.silence = 2;
    started.meanwhile = [&](const std::vector<pid_t>& children, int) {
      for (size_t rank = 0; rank < 3; ++rank) {
        siginfo_t info;
        if (rank != stopped)
          waitid(P_PID, static_cast<id_t>(children[rank]), &info, WEXITED | WNOWAIT);
      }
      kill(children[stopped], SIGKILL);
    };
    const Ended ended = in_processes(started, [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      all.set_remedy("the last good checkpoint is X");
      std::this_thread::sleep_for(200ms);
      if (place.rank == static_cast<int>(stopped)) std::raise(SIGSTOP);
      wait_for_the_end();
    });
    EXPECT_THAT(ended.printed,
                AllOf(HasSubstr("coda: rank " + std::to_string(stopped) + " of 3 ("),
                      HasSubstr(") has been silent for 2 seconds (it is stopped, or its machine "
                                "is gone); the last good checkpoint is X")));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    for (size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ended.statuses[rank], rank == stopped ? 128 + SIGKILL : 1);
  }
}

// As a job is that its user stops for a while.
TEST(Rendezvous, WhereAllAreStoppedForAWhileNobodyWasSilent) {
  Started started = of(3);
  started.place.silence = 1;
  started.meanwhile = [](const std::vector<pid_t>& children, int) {
    std::this_thread::sleep_for(700ms);
    for (const pid_t child : children) kill(child, SIGSTOP);
    std::this_thread::sleep_for(2s);
    for (const pid_t child : children) kill(child, SIGCONT);
  };
  const Ended ended = in_processes(started, [&](const ProcessPlace& place, Socket listening) {
    const Rendezvous all(place, std::move(listening), "CPU", "");
    std::this_thread::sleep_for(1500ms);
  });
  EXPECT_EQ(ended.printed, "");
  EXPECT_EQ(ended.statuses, (std::vector{0, 0, 0}));
}

TEST(Rendezvous, RanksOutOfStepEndWithOneLine) {
  for (const int other : {1, 2}) {
    const Ended ended = in_processes(of(3), [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      all.set_remedy("the last good checkpoint is X");
      require(all.announce("step 1") == 1, "not the first");
      require(all.announce(place.rank == other ? "all_gather of 5 fp32" : "step 2") == 2,
              "not the second");
      wait_for_the_end();
    });
    EXPECT_THAT(ended.printed,
                AllOf(HasSubstr("coda: rank " + std::to_string(other) + " of 3 ("),
                      HasSubstr(") is out of step: its exchange 2 is all_gather of 5 fp32, and "
                                "rank 0's is step 2"),
                      HasSubstr("; the last good checkpoint is X")));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses, (std::vector{1, 1, 1}));
  }
}

TEST(Rendezvous, OneThatLeavesEarlyIsNamed) {
  for (const int early : {0, 1}) {
    const Ended ended = in_processes(of(2), [&](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      all.announce("step 1");
      if (place.rank == early) return;
      std::this_thread::sleep_for(300ms);
      all.announce("step 2");
      wait_for_the_end();
    });
    EXPECT_THAT(ended.printed, AllOf(HasSubstr("coda: rank " + std::to_string(early) + " of 2 ("),
                                     HasSubstr(") has left after its exchange 1, ")));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses[static_cast<size_t>(1 - early)], 1);
  }
}

TEST(Rendezvous, SettingsAreComparedAndTheOneThatDiffersIsNamed) {
  const auto start = [](int other) {
    return in_processes(of(3), [other](const ProcessPlace& place, Socket listening) {
      Rendezvous all(place, std::move(listening), "CPU", "");
      if (place.rank == 2) std::this_thread::sleep_for(500ms);  // rank 0 waits for it
      all.require_same({{"--seed", "1"}, {"--lr", place.rank == other ? "0.2" : "0.1"}});
      if (place.rank == 0) fprintf(stderr, "all are the same\n");
      all.require_same({{"data", "d"}});
      std::this_thread::sleep_for(100ms);
    });
  };
  const Ended same = start(-1);
  EXPECT_EQ(same.printed, "all are the same\n");
  EXPECT_EQ(same.statuses, (std::vector{0, 0, 0}));
  for (const int other : {1, 2}) {
    const Ended ended = start(other);
    EXPECT_THAT(ended.printed, AllOf(HasSubstr("coda: rank " + std::to_string(other) + " of 3 ("),
                                     HasSubstr(") has --lr '0.2' and rank 0 has '0.1'")));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses, (std::vector{1, 1, 1}));
  }
}

// One that has come as a process of the run, and then says what no process says.
Ended with_peer_that_sends(const std::string& bytes, bool stays) {
  Started started = of(2, 1);
  std::thread peer;
  started.meanwhile = [&](const std::vector<pid_t>&, int port) {
    peer = std::thread([=] {
      Spoken control = claim(port, 'H', {});
      const Spoken data = claim(port, 'D', {});
      receive_until(control.socket, control.inbox, soon());
      ::send(control.socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      while (stays && receive_until(control.socket, control.inbox, soon())) {
      }
    });
  };
  const Ended ended = in_processes(started, [](const ProcessPlace& given, Socket listening) {
    ProcessPlace place = given;
    place.patience = 20;
    place.silence = 3;
    Rendezvous all(place, std::move(listening), "CPU", "");
    wait_for_the_end();
  });
  peer.join();
  return ended;
}

TEST(Rendezvous, WhatIsNoMessageEndsTheRun) {
  for (const std::string& bytes : {std::string("B\xff\xff\xff\xff", 5), std::string("Z\0\0\0\0", 5),
                                   std::string("B\x01\x00\x01\x00", 5)}) {
    const Ended ended = with_peer_that_sends(bytes, true);
    EXPECT_THAT(ended.printed, HasSubstr("rank 1 of 2 (somewhere) has sent an invalid message"));
    EXPECT_EQ(lines_of(ended.printed), 1) << ended.printed;
    EXPECT_EQ(ended.statuses, std::vector{1});
  }
}

// Half a message holds up nobody: who sends it is as silent as any other.
TEST(Rendezvous, HalfAMessageIsSilence) {
  const std::string half("B\x10\x00\x00\x00some", 9);
  EXPECT_THAT(with_peer_that_sends(half, true).printed,
              HasSubstr("rank 1 of 2 (somewhere) has been silent for 3 seconds"));
  EXPECT_THAT(with_peer_that_sends(half, false).printed,
              HasSubstr("rank 1 of 2 (somewhere) has ended"));
}

}  // namespace
}  // namespace coda
