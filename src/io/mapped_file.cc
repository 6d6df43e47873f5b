// SPDX-License-Identifier: Apache-2.0
// MappedFile over mmap.
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_error.h"

namespace coda::io {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw file_error("cannot read", path, errno);
  struct stat status = {};
  int error_number = 0;
  if (::fstat(descriptor, &status) != 0) {
    error_number = errno;
  } else if (S_ISDIR(status.st_mode)) {
    error_number = EISDIR;
  } else if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Error("cannot read " + path.string() +
                ": it is no regular file (copy its content to a file first)");
  } else if (status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      error_number = errno;
    } else {
      data_ = static_cast<const std::byte*>(address);
    }
  }
  ::close(descriptor);
  if (error_number != 0) throw file_error("cannot read", path, error_number);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace coda::io
