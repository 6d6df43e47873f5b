// SPDX-License-Identifier: Apache-2.0
// Signal handlers only set a flag; SIGPIPE is ignored, so that a closed output is a write error.
#include "stop_request.h"

#include <cstdio>

namespace coda::tools {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void on_signal(int signal) { stop_signal = signal; }

}  // namespace

StopRequest::StopRequest() {
  stop_signal = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) {
    struct sigaction action = {};
    action.sa_handler = signal == SIGPIPE ? SIG_IGN : on_signal;  // then writing fails
    action.sa_flags = SA_RESTART | (signal == SIGPIPE ? 0 : SA_RESETHAND);
    Before before = {signal, {}};
    sigaction(signal, nullptr, &before.action);
    if (before.action.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    before_.push_back(before);
  }
}

StopRequest::~StopRequest() {
  for (const Before& before : before_) sigaction(before.signal, &before.action, nullptr);
}

bool StopRequest::is_made() const { return stop_signal != 0 || is_output_lost(); }

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool is_output_lost() { return std::ferror(stdout) != 0; }

}  // namespace coda::tools
