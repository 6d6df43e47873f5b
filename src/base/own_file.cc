// SPDX-License-Identifier: Apache-2.0
#include "base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace coda {
namespace {

constexpr off_t kLargest = off_t{1} << 30;

std::string refusal_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_uid != ::geteuid() && status.st_uid != 0) return "it belongs to another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write it";
  if (status.st_size > kLargest) return "it has more than 1 GiB";
  return {};
}

}  // namespace

OwnFile read_own_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return {std::nullopt, errno == ELOOP ? "it is a link" : std::generic_category().message(errno)};
  }
  OwnFile result;
  struct stat status = {};
  result.refusal = ::fstat(file, &status) == 0 ? refusal_of(status) : "it cannot be read";
  if (result.refusal.empty()) {
    std::string text(static_cast<size_t>(status.st_size), 0);
    size_t size = 0;
    for (ssize_t read = 1; read > 0 && size < text.size();) {
      read = ::read(file, text.data() + size, text.size() - size);
      if (read > 0) size += static_cast<size_t>(read);
    }
    text.resize(size);  // less than there was if it is cut off meanwhile
    result.text = std::move(text);
  }
  ::close(file);
  return result;
}

}  // namespace coda
