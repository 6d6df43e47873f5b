// SPDX-License-Identifier: Apache-2.0
// Locks the folder with flock(), which the kernel releases when the process ends.
#include "coda/run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_error.h"
#include "coda/error.h"

namespace coda {

RunLock::RunLock(const std::filesystem::path& run_folder) {
  std::error_code error;
  std::filesystem::create_directories(run_folder, error);
  descriptor_ = ::open(run_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0)
    throw file_error("cannot write the run's folder", run_folder, error ? error.value() : errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw Error(run_folder.string() +
                ": another coda train is at work there (wait until it ends, stop it, or choose "
                "another --out)");
  }
}

RunLock::~RunLock() { ::close(descriptor_); }

}  // namespace coda
