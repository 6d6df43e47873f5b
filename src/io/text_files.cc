// SPDX-License-Identifier: Apache-2.0
#include "io/text_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_error.h"
#include "coda/error.h"
#include "coda/messages.h"
#include "io/ignore_rules.h"
#include "io/mapped_file.h"
#include "models/counter_random.h"

namespace coda::io {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::string_view, 4> kSkipped{"build", "out", "node_modules", "__pycache__"};
constexpr size_t kMostRules = size_t{1} << 16;  // bytes of a file of rules

// Empty if there is none: then, and if it is a link, it has nothing to say.
std::string rules_of(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error))) return {};
  std::string text = read_file(file);
  require(text.size() <= kMostRules, printable(file) + ": more than " + std::to_string(kMostRules) +
                                         " bytes of rules (shorten or remove it)");
  return text;
}

bool is_text(const fs::path& file) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return !bytes.empty() && std::find(bytes.begin(), bytes.end(), std::byte{0}) == bytes.end();
}

// Adds the texts of folder / below, where `below` is "" or ends in '/'.
void add_texts(const fs::path& folder, const std::string& below, IgnoreRules& rules,
               std::vector<fs::path>& files) {
  rules.add_ignored(rules_of(folder / below / ".gitignore"), below);
  rules.add_generated(rules_of(folder / below / ".gitattributes"), below);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / below)) {
    const std::string name = entry.path().filename().native();
    if (name.starts_with('.') || entry.is_symlink()) continue;
    if (entry.is_directory()) {
      if (std::find(kSkipped.begin(), kSkipped.end(), name) != kSkipped.end()) continue;
      if (!rules.ignores(below + name, true)) add_texts(folder, below + name + "/", rules, files);
    } else if (entry.is_regular_file() && !rules.ignores(below + name, false)) {
      if (is_text(entry.path())) files.push_back(entry.path());
    }
  }
}

struct Kind {
  std::string_view start;
  const char* name;
};
using namespace std::string_view_literals;
constexpr Kind kKinds[] = {
    {"\x1f\x8b\x08"sv, "compressed by gzip"},
    {"BZh"sv, "compressed by bzip2"},
    {"\xfd"
     "7zXZ"sv,
     "compressed by xz"},
    {"\x28\xb5\x2f\xfd"sv, "compressed by zstd"},
    {"\x04\x22\x4d\x18"sv, "compressed by lz4"},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {"PK\x03\x04"sv, "a zip archive (a checkpoint of PyTorch, an .npz, a document)"},
    {"PAR1"sv, "a Parquet table"},
    {"ARROW1"sv, "an Arrow table"},
    {"ORC"sv, "an ORC table"},
    {"\x89HDF"sv, "an HDF5 file"},
    {"SQLite format 3"sv, "an SQLite database"},
    {"\x93NUMPY"sv, "an array of NumPy"},
    {"GGUF"sv, "a checkpoint (GGUF)"},
    {"\x89PNG"sv, "an image (PNG)"},
    {"\xff\xd8\xff"sv, "an image (JPEG)"},
    {"GIF8"sv, "an image (GIF)"},
    {"%PDF-"sv, "a PDF"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"\xff\xfe\0\0"sv, "text in UTF-32"},
    {"\xff\xfe"sv, "text in UTF-16"},
    {"\xfe\xff"sv, "text in UTF-16"},
};

// Eight bytes of a length, and a JSON object.
bool is_safetensors(std::string_view text) {
  return text.size() > 9 && text.substr(8, 2) == "{\"" && text.substr(4, 4) == "\0\0\0\0"sv;
}

std::string_view letters_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Ignores kinds whose signature has fewer than `least` bytes.
const char* kind_of(std::string_view text, size_t least = 0) {
  for (const Kind& kind : kKinds)
    if (kind.start.size() >= least && text.starts_with(kind.start)) return kind.name;
  if (is_safetensors(text)) return "a checkpoint (safetensors)";
  return nullptr;
}

}  // namespace

void require_text(std::span<const std::byte> bytes, const std::string& source) {
  const auto refuse = [&source](const std::string& what) {
    throw Error(source + ": the file is no text, it " + what +
                " (give UTF-8 text, or token ids with --ids)");
  };
  const char* kind = kind_of(letters_of(bytes));
  if (kind != nullptr) refuse(std::string("is ") + kind);
  const auto zero = std::ranges::find(bytes, std::byte{0});
  if (zero != bytes.end()) refuse("has a byte of 0 at " + std::to_string(zero - bytes.begin()));
}

void require_no_other_kind(std::span<const std::byte> bytes, const std::string& source) {
  constexpr size_t kNoChance = 3;     // a signature of two bytes could be a valid token id
  constexpr size_t kEnoughText = 64;  // so many printable bytes are not token ids by chance
  const std::string_view text = letters_of(bytes);
  const auto refuse = [&source](const std::string& what) {
    throw Error(source + ": the file has no token ids, it is " + what +
                " (--ids takes little-endian numbers and nothing else, as NumPy's tofile writes)");
  };
  const char* kind = kind_of(text, kNoChance);
  if (kind != nullptr) refuse(kind);
  const std::string_view start = text.substr(0, size_t{1} << 12);
  const bool is_text = std::ranges::all_of(
      start, [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
  if (is_text && start.size() >= kEnoughText) refuse("a text, which --data reads");
}

std::vector<fs::path> texts_in(const fs::path& folder) {
  std::vector<fs::path> files;
  IgnoreRules rules;
  try {
    add_texts(folder, "", rules, files);
  } catch (const fs::filesystem_error& error) {
    throw file_error("cannot read the folder", error);
  }
  // By a number that is random but each name's own: a file more or less leaves the others where
  // they are, so what is held out, at the end, stays almost the same while a folder grows.
  std::vector<std::pair<uint64_t, fs::path>> order;
  for (const fs::path& file : files) {
    const std::string name = file.lexically_relative(folder).generic_string();
    order.emplace_back(random_bits(0, stream_of(name), 0), file);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < files.size(); ++i) files[i] = order[i].second;
  return files;
}

}  // namespace coda::io
