// SPDX-License-Identifier: Apache-2.0
// Processes of one run, each forked from a test, and what came of them.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "coda/communicator.h"
#include "coda/error.h"
#include "collective/socket.h"

namespace coda {

struct Ended {
  std::vector<int> statuses;  // of the ranks; 128 + the signal that ended it
  std::string printed;        // on the standard errors of all
};

struct Started {
  int world = 2;
  int absent = 0;  // the last of them are not started
  ProcessPlace place = {};
  // Called once all are started, with them and where rank 0 listens.
  std::function<void(const std::vector<pid_t>&, int port)> meanwhile = {};
};

// Until the process is ended: by itself on another thread, or by a signal.
[[noreturn]] inline void wait_for_the_end() {
  while (true) pause();
}

// work(place, a socket that listens) in a process for each rank; only rank 0's socket does.
inline Ended in_processes(const Started& started,
                          const std::function<void(const ProcessPlace&, Socket)>& work) {
  Socket listening = listen_at("127.0.0.1", 0);
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < started.world - started.absent; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      ProcessPlace place = started.place;
      place.rank = rank;
      place.world = started.world;
      place.address = "127.0.0.1";
      place.port = port_of(listening);
      if (started.absent > 0) place.patience = 1;
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
  const int port = port_of(listening);
  listening.close();
  if (started.meanwhile) started.meanwhile(children, port);
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

inline int64_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace coda
