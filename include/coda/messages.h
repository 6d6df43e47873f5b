// SPDX-License-Identifier: Apache-2.0
// Prints untrusted text in messages. Text from a file, a folder name or a flag may be a megabyte
// long or contain terminal control sequences, so messages print it through these functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/error.h"

namespace CODA_API coda {

// The text on one line of at most about 300 bytes. Control characters, invalid UTF-8 and
// bidirectional marks are written as \x1b. A long text is reduced to its start, its length and its
// end.
std::string printable(std::string_view text);
std::string printable(const std::string& text);
std::string printable(const std::filesystem::path& path);

// The same without the length limit: for a whole message.
std::string without_escapes(std::string_view text);

// The printable text in single quotes.
std::string in_quotes(std::string_view text);

// Rewrites a filesystem error of the standard library: the action ("cannot write"), the path, the
// system's reason and what the user can do about it.
Error file_error(std::string_view action, const std::filesystem::filesystem_error& error);

}  // namespace CODA_API coda
