// SPDX-License-Identifier: Apache-2.0
// AtomicFile over POSIX calls. Order matters: file synced, then renamed, then the folder synced.
#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "base/file_error.h"

namespace coda {
namespace fs = std::filesystem;
namespace {

// The regular file that `path` stands for, or will.
fs::path target_of(const fs::path& path) {
  if (path.filename().empty() || path.filename() == "." || path.filename() == "..") {
    throw file_error("cannot write", path, EISDIR);
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::directory) throw file_error("cannot write", path, EISDIR);
  if (fs::exists(status) && status.type() != fs::file_type::regular) {
    throw Error("cannot write " + path.string() +
                ": it is neither a regular file nor a free name (choose another name)");
  }
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    fs::path target = fs::weakly_canonical(path, error);
    if (!error) return target;
  }
  return path;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(target_of(path)) {
  static std::atomic<unsigned> counter{0};
  struct stat old = {};
  const bool replaces = ::stat(path_.c_str(), &old) == 0;
  do {
    temporary_ = folder_of(path_) /
                 (".coda-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) throw file_error("cannot write", path_, errno);
  // A file that is replaced keeps its permissions; where that is refused, the defaults stand.
  if (replaces && ::fchmod(descriptor_, old.st_mode & 07777) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr size_t kLargest = size_t{1} << 30;  // one call moves less than 2^31 bytes
  if (descriptor_ < 0) throw InternalError("AtomicFile: write after commit");
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargest));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw file_error("cannot write", path_, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw InternalError("AtomicFile: committed twice");
  int result = 0;
  do {
    result = ::fsync(descriptor_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw file_error("cannot write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw file_error("cannot replace", path_, errno);
  }
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 && errno != EINTR) throw file_error("cannot write", path_, errno);
  sync_folder(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw file_error("cannot open the folder", folder, errno);
  const int result = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder and say EINVAL; their renames are as durable as they
  // get.
  if (result != 0 && error_number != EINVAL && error_number != EINTR) {
    throw file_error("cannot sync the folder", folder, error_number);
  }
}

}  // namespace coda
