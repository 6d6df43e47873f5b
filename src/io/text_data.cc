// SPDX-License-Identifier: Apache-2.0
// Loads texts and files of token ids.
#include "coda/text_data.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/file_error.h"
#include "coda/error.h"
#include "io/mapped_file.h"
#include "io/text_files.h"

namespace coda {
namespace fs = std::filesystem;
namespace {

// Occurs in no text of a folder.
constexpr std::byte kBetweenFiles{0};

uint32_t id_at(const std::byte* bytes, int width) {
  uint32_t id = 0;
  std::memcpy(&id, bytes, static_cast<size_t>(width));
  return id;
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

Tokens load_text(const fs::path& path) {
  std::error_code ignored;  // reading it says what is wrong
  std::vector<fs::path> files{path};
  if (fs::is_directory(path, ignored)) {
    files = io::texts_in(path);
    require(!files.empty(), printable(path) + ": no text files in the folder (give another)");
  }
  auto text = std::make_shared<std::vector<std::byte>>();
  for (const fs::path& name : files) {
    const io::MappedFile file(name);
    require(!file.bytes().empty(), printable(name) + ": the file is empty (give a text)");
    io::require_text(file.bytes(), printable(name));
    if (!text->empty()) text->push_back(kBetweenFiles);
    text->insert(text->end(), file.bytes().begin(), file.bytes().end());
    io::require_whole(file.bytes());
  }
  return {printable(path), text, *text, 1};
}

Tokens load_token_ids(const fs::path& file, int width, int64_t vocab) {
  require(width == 2 || width == 4,
          printable(file) + ": token ids have 2 or 4 bytes, not " + std::to_string(width));
  auto mapped = std::make_shared<const io::MappedFile>(file);
  const std::span<const std::byte> bytes = mapped->bytes();
  require(!bytes.empty(), printable(file) + ": the file is empty (give a file of token ids)");
  io::require_no_other_kind(bytes, printable(file));
  require(bytes.size() % static_cast<size_t>(width) == 0,
          printable(file) + ": " + std::to_string(bytes.size()) + " bytes are no whole number of " +
              std::to_string(width) +
              "-byte token ids (the file is cut, or its ids have another size)");
  Tokens tokens{printable(file), std::move(mapped), bytes, width};
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
  io::require_whole(tokens.bytes);
}

std::string fingerprint(const Tokens& tokens) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::byte b : tokens.bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3ULL;
  io::require_whole(tokens.bytes);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
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

}  // namespace coda
