// SPDX-License-Identifier: Apache-2.0
// AtomicFile over POSIX calls. Order matters: file synced, then renamed, then the folder synced.
#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "base/file_error.h"

namespace coda {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = ".coda-";
constexpr std::string_view kSuffix = ".tmp";

// The permissions of the regular file that is to be replaced; 0 if a free name or a link is.
mode_t mode_of_old(const fs::path& path) {
  if (path.filename().empty() || path.filename() == "." || path.filename() == "..") {
    throw file_error("cannot write", path, EISDIR);
  }
  struct stat old = {};
  if (::lstat(path.c_str(), &old) != 0 || S_ISLNK(old.st_mode)) return 0;
  if (S_ISDIR(old.st_mode)) throw file_error("cannot write", path, EISDIR);
  if (!S_ISREG(old.st_mode)) {
    throw Error("cannot write " + printable(path) +
                ": it is neither a regular file nor a free name (choose another name)");
  }
  return old.st_mode & 0777;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path, Access access) : path_(path) {
  static std::atomic<unsigned> counter{0};
  const mode_t old = mode_of_old(path);
  const mode_t mode = access == Access::owner ? 0600 : 0666;
  do {
    temporary_ = folder_of(path_) / (std::string(kPrefix) + std::to_string(::getpid()) + "-" +
                                     std::to_string(counter++) + std::string(kSuffix));
    descriptor_ =
        ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) throw file_error("cannot write", path_, errno);
  ::flock(descriptor_, LOCK_EX | LOCK_NB);  // for remove_temporaries
  // Where keeping the permissions is refused, the defaults stand.
  if (old != 0 && access == Access::usual && ::fchmod(descriptor_, old) != 0) errno = 0;
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

void write_file_atomically(const fs::path& path, std::string_view contents, Access access) {
  AtomicFile file(path, access);
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

void make_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  fs::path at = fs::absolute(folder).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  for (; !fs::exists(at, error) && !error && at.has_relative_path(); at = at.parent_path()) {
    missing.push_back(at);
  }
  if (error) throw file_error("cannot make the folder", folder, error.value());
  for (; !missing.empty(); missing.pop_back()) {
    if (::mkdir(missing.back().c_str(), 0777) != 0 && errno != EEXIST) {
      throw file_error("cannot make the folder", missing.back(), errno);
    }
    sync_folder(missing.back().parent_path());
  }
}

void remove_temporaries(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().native();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const int file = ::open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    struct stat status = {};
    if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        ::flock(file, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(at->path().c_str());
    }
    ::close(file);
  }
}

}  // namespace coda
