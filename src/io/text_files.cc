// SPDX-License-Identifier: Apache-2.0
#include "io/text_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/file_error.h"
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

}  // namespace

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
