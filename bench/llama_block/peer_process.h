// SPDX-License-Identifier: Apache-2.0
// Runs a peer's benchmark as a child process: one request per line, one answer per line.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace coda::bench {

class PeerProcess {
 public:
  explicit PeerProcess(
      const std::string& command);  // run by the shell; throws Error if it cannot start
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  std::string ask(
      const std::string& request);  // throws Error if the peer answers with an error or is gone
  double seconds(const std::string& request);  // of an answer "seconds S"

 private:
  pid_t child_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

}  // namespace coda::bench
