// SPDX-License-Identifier: Apache-2.0
// Foreign text in messages. What a file, a folder or a flag holds was written by somebody else: it
// may be a megabyte long, or move a terminal's cursor. A message shows it through these functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "coda/api.h"
#include "coda/error.h"

namespace CODA_API coda {

// The text on one line of at most some 300 bytes: control characters, what is no UTF-8 and marks
// that turn the direction of writing as \x1b; of a long text the start, its length and the end.
std::string printable(std::string_view text);
std::string printable(const std::string& text);
std::string printable(const std::filesystem::path& path);

// The same without a limit: for a whole message.
std::string without_escapes(std::string_view text);

// 'text', printable.
std::string in_quotes(std::string_view text);

// What a function of the standard library threw about a file, in our words: the action ("cannot
// write"), the path, the system's reason and what the user can do about it.
Error file_error(std::string_view action, const std::filesystem::filesystem_error& error);

}  // namespace CODA_API coda
