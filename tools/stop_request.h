// SPDX-License-Identifier: Apache-2.0
// Being asked to stop, so that work is saved first.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace coda::tools {

// From the first to the last line of its scope Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP (a terminal that
// is closed) only ask to stop, and so does an output that nobody reads any more (a closed pipe, a
// full disk under a log). A second signal of a kind ends the process at once. What was ignored when
// the process started (nohup) stays ignored.
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

// Prints to the standard output at once. Where that fails, is_output_lost() says so from then on.
void say(const std::string& text);
bool is_output_lost();

}  // namespace coda::tools
