// SPDX-License-Identifier: Apache-2.0
// One way to say that the system refused something about a file: the action, the path, the system's
// reason and what the user can do about it.
#pragma once

#include <filesystem>
#include <string_view>

#include "coda/messages.h"

namespace coda {

// "cannot write out/a.svg: No space left on device (free some space or choose another place)".
Error file_error(std::string_view action, const std::filesystem::path& path, int error_number);

}  // namespace coda
