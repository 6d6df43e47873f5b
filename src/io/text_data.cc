// SPDX-License-Identifier: Apache-2.0
// Loads texts and files of token ids.
#include "io/text_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/mapped_file.h"

namespace coda::io {
namespace fs = std::filesystem;
namespace {

uint32_t id_at(const std::byte* bytes, int width) {
  uint32_t id = 0;
  std::memcpy(&id, bytes, static_cast<size_t>(width));
  return id;
}

bool is_text(std::span<const std::byte> bytes) {
  constexpr size_t kLooked = size_t{1} << 16;
  const auto start = bytes.first(std::min(bytes.size(), kLooked));
  return !bytes.empty() && std::find(start.begin(), start.end(), std::byte{0}) == start.end();
}

bool is_skipped(const fs::directory_entry& entry, const TextOptions& options) {
  const std::string name = entry.path().filename().string();
  return name.starts_with('.') || entry.is_symlink() ||
         (entry.is_directory() &&
          std::find(options.skipped_folders.begin(), options.skipped_folders.end(), name) !=
              options.skipped_folders.end());
}

std::vector<fs::path> files_of(const fs::path& folder, const TextOptions& options) {
  std::vector<fs::path> files;
  try {
    for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
      if (is_skipped(*entry, options)) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        files.push_back(entry->path());
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw file_error("cannot read the folder", error.path1().empty() ? folder : error.path1(),
                     error.code().value());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void require_sequence(const Tokens& tokens, int64_t sequence, const std::string& what,
                      const std::string& remedy = "give more data or shorter sequences") {
  if (tokens.size() > sequence) return;
  throw Error(tokens.source + ": " + what + " has " + std::to_string(tokens.size()) +
              " tokens, but a sequence of " + std::to_string(sequence) + " needs " +
              std::to_string(sequence + 1) + " (" + remedy + ")");
}

}  // namespace

int32_t Tokens::operator[](int64_t index) const {
  return static_cast<int32_t>(id_at(bytes.data() + index * width, width));
}

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  Tokens part = *this;
  part.bytes =
      bytes.subspan(static_cast<size_t>(begin * width), static_cast<size_t>((end - begin) * width));
  return part;
}

Tokens load_text(std::span<const fs::path> paths, const TextOptions& options) {
  require(!paths.empty(), "no text is given (name a file or a folder)");
  auto text = std::make_shared<std::vector<std::byte>>();
  std::string source;
  int64_t files = 0;
  const auto append = [&](std::span<const std::byte> bytes) {
    if (files++ > 0) text->push_back(std::byte{options.separator});
    text->insert(text->end(), bytes.begin(), bytes.end());
  };
  for (const fs::path& path : paths) {
    source += (source.empty() ? "" : ", ") + path.string();
    std::error_code ignored;  // reading it says what is wrong
    if (!fs::is_directory(path, ignored)) {
      const MappedFile file(path);
      require(!file.bytes().empty(), path.string() + ": the file is empty (give a text)");
      append(file.bytes());
      continue;
    }
    const int64_t files_before = files;
    for (const fs::path& name : files_of(path, options)) {
      const MappedFile file(name);
      if (is_text(file.bytes())) append(file.bytes());
    }
    require(files > files_before, path.string() + ": no text files in the folder (give another)");
  }
  Tokens tokens;
  tokens.source = source;
  tokens.bytes = *text;
  tokens.owner = std::move(text);
  return tokens;
}

Tokens load_token_ids(const fs::path& file, int width, int64_t vocab) {
  require(width == 2 || width == 4,
          file.string() + ": token ids have 2 or 4 bytes, not " + std::to_string(width));
  auto mapped = std::make_shared<const MappedFile>(file);
  const std::span<const std::byte> bytes = mapped->bytes();
  require(!bytes.empty(), file.string() + ": the file is empty (give a file of token ids)");
  require(bytes.size() % static_cast<size_t>(width) == 0,
          file.string() + ": " + std::to_string(bytes.size()) + " bytes are no whole number of " +
              std::to_string(width) +
              "-byte token ids (the file is cut, or its ids have another size)");
  Tokens tokens{file.string(), std::move(mapped), bytes, width};
  check_vocabulary(tokens, vocab);
  return tokens;
}

void check_vocabulary(const Tokens& tokens, int64_t vocab) {
  for (int64_t i = 0; i < tokens.size(); ++i) {
    const uint32_t id = id_at(tokens.bytes.data() + i * tokens.width, tokens.width);
    if (id < vocab) continue;
    throw Error(tokens.source + ": token " + std::to_string(i) + " is id " + std::to_string(id) +
                ", but the vocabulary has " + std::to_string(vocab) +
                " ids (give a larger vocabulary, or data made for this one)");
  }
}

TokenSplit split_tokens(const Tokens& tokens, double held_out, int64_t sequence) {
  require(held_out >= 0 && held_out < 1,
          "the held-out share must be at least 0 and below 1, not " + std::to_string(held_out));
  require(sequence >= 1, "a sequence has at least 1 token, not " + std::to_string(sequence));
  const auto count = static_cast<int64_t>(std::ceil(static_cast<double>(tokens.size()) * held_out));
  const int64_t border = tokens.size() - count;
  TokenSplit split{tokens.slice(0, border), tokens.slice(border, tokens.size())};
  require_sequence(tokens, sequence, "the data");
  require_sequence(split.train, sequence, "the part for training");
  if (count > 0) {
    require_sequence(split.held_out, sequence, "the held-out part",
                     "give more data or shorter sequences, or hold out more of it, or nothing");
  }
  return split;
}

}  // namespace coda::io
