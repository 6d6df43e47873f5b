// SPDX-License-Identifier: Apache-2.0
// Turns signals into a request to stop, so that work can be saved first.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace coda::tools {

// While a StopRequest lives, Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a closed terminal) only request a
// stop, and so does an output that fails (a closed pipe, a full disk under a log). A second signal
// of the same kind ends the process at once. Signals that were ignored when the process started
// (nohup) stay ignored.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  bool is_made() const;

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

// Prints to the standard output and flushes. After a failure, is_output_lost() is true.
void say(const std::string& text);
bool is_output_lost();

}  // namespace coda::tools
