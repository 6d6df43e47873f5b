// SPDX-License-Identifier: Apache-2.0
// A disk that is full, for a test: while this object lives, this process cannot write a file beyond
// `bytes` (the write fails with EFBIG, as it would with ENOSPC).
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace coda {

class FailingDisk {
 public:
  explicit FailingDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FailingDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

 private:
  rlimit old_limit_ = {};
  void (*old_handler_)(int) = nullptr;
};

}  // namespace coda
