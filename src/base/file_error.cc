// SPDX-License-Identifier: Apache-2.0
// Messages of failed file operations.
#include "base/file_error.h"

#include <cerrno>
#include <system_error>

namespace coda {
namespace {

std::string_view remedy_of(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "free some space or choose another place";
    case EACCES:
    case EPERM: return "check the permissions of the file and of its folder";
    case EROFS: return "choose a place that is not read-only";
    case ENOENT: return "check the name, and that its folder exists";
    case ENOTDIR: return "a part of the path is a file: check the name";
    case EISDIR: return "give the name of a file, not of a folder";
    case ENAMETOOLONG: return "choose a shorter name";
    case ELOOP: return "a link leads back to itself: check the links on the path";
    case EMFILE:
    case ENFILE: return "close files or raise the limit of open files (ulimit -n)";
    case ENOMEM: return "free some memory";
    default: return "check the disk and the path";
  }
}

}  // namespace

Error file_error(std::string_view action, const std::filesystem::path& path, int error_number) {
  return Error(std::string(action) + " " + printable(path) + ": " +
               std::generic_category().message(error_number) + " (" +
               std::string(remedy_of(error_number)) + ")");
}

Error file_error(std::string_view action, const std::filesystem::filesystem_error& error) {
  return file_error(action, error.path1(), error.code().value());
}

}  // namespace coda
