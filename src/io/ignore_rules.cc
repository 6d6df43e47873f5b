// SPDX-License-Identifier: Apache-2.0
#include "io/ignore_rules.h"

#include <sstream>

namespace coda::io {
namespace {

// Which beginnings of a path the pattern so far matches: place i stands for its first i characters.
using Places = std::vector<bool>;

// Places after one more character that `takes` accepts.
template <typename Takes>
Places after_one(const Places& places, std::string_view path, Takes takes) {
  Places next(places.size());
  for (size_t i = 0; i < path.size(); ++i) next[i + 1] = places[i] && takes(path[i]);
  return next;
}

// After any number of characters of a name.
void extend_in_name(Places& places, std::string_view path) {
  for (size_t i = 0; i < path.size(); ++i) {
    if (places[i] && path[i] != '/') places[i + 1] = true;
  }
}

// After "**/" (whole folders, or nothing), or after "**" at the end (anything).
void extend_over_folders(Places& places, std::string_view path, bool whole_folders) {
  bool begun = false;
  for (size_t i = 0; i <= path.size(); ++i) {
    const bool was = places[i];
    if (begun && (!whole_folders || path[i - 1] == '/')) places[i] = true;
    begun = begun || was;
  }
}

// Whether [...] at the start of `pattern` takes the character; its length, or 0 if it has no end.
size_t character_class(std::string_view pattern, char character, bool& takes) {
  size_t i = 1;
  const bool negated = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (const size_t first = i; i < pattern.size() && (pattern[i] != ']' || i == first); ++i) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      found = found || (pattern[i] <= character && character <= pattern[i + 2]);
      i += 2;
    } else {
      found = found || pattern[i] == character;
    }
  }
  takes = character != '/' && found != negated;
  return i < pattern.size() ? i + 1 : 0;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view path) {
  Places places(path.size() + 1);
  places[0] = true;
  while (!pattern.empty()) {
    size_t used = 1;
    bool ignored = false;
    if (pattern.starts_with("**/")) {
      used = 3;
      extend_over_folders(places, path, true);
    } else if (pattern == "**") {
      used = 2;
      extend_over_folders(places, path, false);
    } else if (pattern[0] == '*') {
      extend_in_name(places, path);
    } else if (pattern[0] == '?') {
      places = after_one(places, path, [](char c) { return c != '/'; });
    } else if (pattern[0] == '[' && character_class(pattern, ' ', ignored) > 0) {
      used = character_class(pattern, ' ', ignored);
      places = after_one(places, path, [&](char c) {
        bool takes = false;
        character_class(pattern, c, takes);
        return takes;
      });
    } else {
      if (pattern[0] == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
      places = after_one(places, path, [&](char c) { return c == pattern[0]; });
    }
    pattern.remove_prefix(used);
  }
  return places[path.size()];
}

void IgnoreRules::add(std::string pattern, Rule rule) {
  rule.folders_only = pattern.ends_with('/');
  if (rule.folders_only) pattern.pop_back();
  const bool is_of_the_folder = pattern.find('/') != std::string::npos;
  if (pattern.starts_with('/')) pattern.erase(0, 1);
  if (pattern.empty()) return;
  rule.pattern = (is_of_the_folder ? "" : "**/") + pattern;
  rules_.push_back(std::move(rule));
}

void IgnoreRules::add_ignored(std::string_view text, const std::string& folder) {
  for (std::string& line : lines_of(text)) {
    const bool negated = line[0] == '!';
    add(negated ? line.substr(1) : line, {.folder = folder, .pattern = {}, .ignores = !negated});
  }
}

void IgnoreRules::add_generated(std::string_view text, const std::string& folder) {
  for (const std::string& line : lines_of(text)) {
    std::istringstream words(line);
    std::string pattern;
    words >> pattern;
    for (std::string word; words >> word;) {
      const bool is_set = word == "linguist-generated" || word == "linguist-generated=true";
      if (!is_set && word != "-linguist-generated" && word != "linguist-generated=false") continue;
      add(pattern, {.folder = folder, .pattern = {}, .ignores = is_set, .files_only = true});
    }
  }
}

bool IgnoreRules::ignores(std::string_view path, bool is_folder) const {
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (!path.starts_with(rule->folder) || (is_folder ? rule->files_only : rule->folders_only)) {
      continue;
    }
    if (matches(rule->pattern, path.substr(rule->folder.size()))) return rule->ignores;
  }
  return false;
}

}  // namespace coda::io
