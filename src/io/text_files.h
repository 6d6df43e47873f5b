// SPDX-License-Identifier: Apache-2.0
// Finds the texts of a folder, for training. The folder is not trusted: no program is run (a Git
// checkout's own configuration could name one) and no link is followed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace coda::io {

// All texts in the folder at any depth, in an order that is shuffled once and for all, so that the
// end of the whole is a fair sample of it. Passed over are names that start with '.', links,
// folders named build, out, node_modules or __pycache__, what .gitignore files name and
// .gitattributes files call linguist-generated, empty files, and files with a byte of 0. Throws
// Error for a folder or file that cannot be read.
std::vector<std::filesystem::path> texts_in(const std::filesystem::path& folder);

// Throws Error, naming the kind, for a file that begins as one of a kind that is no text
// (compressed, an image, a checkpoint, a table), and for any other file with a byte of 0.
void require_text(std::span<const std::byte> bytes, const std::string& source);

// For files of token ids. Throws Error, with the kind of the file, if the bytes begin like a file
// of another kind or are text.
void require_no_other_kind(std::span<const std::byte> bytes, const std::string& source);

}  // namespace coda::io
