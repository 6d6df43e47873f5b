// SPDX-License-Identifier: Apache-2.0
// Reads files that determine what this process runs, such as compiled kernels, only if nobody
// except the user or root can have written them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace coda {

struct OwnFile {
  std::optional<std::string> text;
  std::string refusal;  // why a file that is there is not read; empty if there is none
};

// Of a regular file of at most 1 GiB that belongs to this process's user or to root and that no one
// else may write; links are not followed, and nothing there (a pipe, a device) makes it wait.
OwnFile read_own_file(const std::filesystem::path& path);

}  // namespace coda
