// SPDX-License-Identifier: Apache-2.0
// One way to say that the system refused something about a file: the action, the path, the system's
// reason and what the user can do about it. Also how names found in files are quoted, so that a
// message stays one printable line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "coda/error.h"

namespace coda {

// "cannot write out/a.svg: No space left on device (free some space or choose another place)".
Error file_error(std::string_view action, const std::filesystem::path& path, int error_number);

// 'name', with control characters escaped and long names shortened.
std::string in_quotes(std::string_view name);

}  // namespace coda
