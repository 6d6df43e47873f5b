// SPDX-License-Identifier: Apache-2.0
#include "peer_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "coda/error.h"

namespace coda::bench {

PeerProcess::PeerProcess(const std::string& command) {
  int requests[2];
  int answers[2];
  require(pipe(requests) == 0 && pipe(answers) == 0, "cannot make pipes for the peer");
  std::signal(SIGPIPE, SIG_IGN);
  child_ = fork();
  require(child_ >= 0, "cannot start the peer");
  if (child_ == 0) {
    dup2(requests[0], STDIN_FILENO);
    dup2(answers[1], STDOUT_FILENO);
    for (int end : {requests[0], requests[1], answers[0], answers[1]}) close(end);
    execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
    _exit(127);
  }
  close(requests[0]);
  close(answers[1]);
  to_ = fdopen(requests[1], "w");
  from_ = fdopen(answers[0], "r");
}

PeerProcess::~PeerProcess() {
  if (to_ != nullptr) {
    std::fputs("quit\n", to_);
    std::fclose(to_);
  }
  if (from_ != nullptr) std::fclose(from_);
  if (child_ > 0) waitpid(child_, nullptr, 0);
}

std::string PeerProcess::ask(const std::string& request) {
  std::fputs((request + "\n").c_str(), to_);
  std::fflush(to_);
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    require(c != EOF, "the peer ended while it was asked for \"" + request +
                          "\"; run its command by hand to see why");
    line += static_cast<char>(c);
  }
  require(line.rfind("error", 0) != 0, "the peer answered \"" + request + "\" with: " + line);
  return line;
}

double PeerProcess::seconds(const std::string& request) {
  const std::string line = ask(request);
  require(line.rfind("seconds ", 0) == 0, "the peer answered \"" + request + "\" with: " + line);
  return std::strtod(line.c_str() + 8, nullptr);
}

}  // namespace coda::bench
