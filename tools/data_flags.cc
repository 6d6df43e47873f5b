// SPDX-License-Identifier: Apache-2.0
#include "data_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "coda/error.h"
#include "io/mapped_file.h"
#include "models/counter_random.h"

namespace coda::tools {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytes = 256;  // the vocabulary of texts

// 'path', so that a shell takes it as one word.
std::string quoted(const std::string& path) {
  std::string result = "'";
  for (char c : path) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// What a command prints; empty if it fails.
std::string output_of(const std::string& command) {
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  std::string output;
  std::array<char, 4096> buffer{};
  while (pipe != nullptr) {
    const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get());
    if (count == 0) break;
    output.append(buffer.data(), count);
  }
  return output;
}

bool is_text(const fs::path& file) {
  if (!fs::is_regular_file(file) || fs::is_symlink(file)) return false;
  const io::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return !bytes.empty() && std::find(bytes.begin(), bytes.end(), std::byte{0}) == bytes.end();
}

// The texts that Git tracks in the folder, shuffled, but for what .gitattributes calls generated;
// none if it is no checkout or there is no Git.
std::vector<fs::path> tracked_texts(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder / ".git")) return files;
  const std::string names =
      output_of("git -C " + quoted(folder.string()) +
                " ls-files -z -- ':(exclude,attr:linguist-generated)' 2> /dev/null");
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = names.find('\0', begin);
    const fs::path file = folder / names.substr(begin, end - begin);
    if (is_text(file)) files.push_back(file);
    begin = end + 1;
  }
  std::sort(files.begin(), files.end());
  for (size_t i = files.size(); i > 1; --i) {
    std::swap(files[i - 1], files[random_bits(0, stream_of("files"), i) % i]);
  }
  return files;
}

}  // namespace

io::Tokens load_texts(const std::string& path) {
  require(fs::exists(path), path + ": there is no such file or folder (give a text with --data)");
  std::vector<fs::path> files;
  if (fs::is_directory(path)) files = tracked_texts(path);
  if (files.empty()) files = {path};
  io::Tokens tokens =
      io::load_text(files, {.skipped_folders = {"build", "out", "node_modules", "__pycache__"}});
  tokens.source = path;
  return tokens;
}

void DataFlags::add_to(CLI::App& command) {
  command.add_option("--data", data, "A text file, or a folder of them; a token is a byte")
      ->type_name("PATH")
      ->group("Data");
  command.add_option("--ids", ids, "Instead of --data: a file of token ids, little-endian numbers")
      ->type_name("FILE")
      ->group("Data");
  command.add_option("--id-bytes", id_bytes, "Bytes of an id in the file of --ids")
      ->check(CLI::IsMember({2, 4}))
      ->capture_default_str()
      ->group("Data");
}

io::Tokens DataFlags::load(int64_t vocab) const {
  require(!data.empty() || !ids.empty(),
          "no data: give a text with --data or token ids with --ids");
  require(data.empty() || ids.empty(), "--data and --ids are both given: give one of them");
  if (!ids.empty()) return io::load_token_ids(ids, id_bytes, vocab);
  require(vocab >= kBytes || vocab == 0,
          "a text has 256 tokens, its bytes, but the model's vocabulary has " +
              std::to_string(vocab) + ": give --ids made with the model's tokenizer");
  return load_texts(data);
}

}  // namespace coda::tools
