// SPDX-License-Identifier: Apache-2.0
// Decides which files of a folder to skip, by its .gitignore and .gitattributes. These files are
// only parsed as text; nothing in the folder is run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coda::io {

// Whether a path, relative to the folder of the rule, matches a pattern of .gitignore: * and ? stay
// within a name, ** does not, [a-z] is one of these characters, \ quotes the next character.
// Takes time proportional to the product of both lengths.
bool matches(std::string_view pattern, std::string_view path);

class IgnoreRules {
 public:
  // Adds the lines of the .gitignore of a folder; `folder` is its path below the first one, "" or
  // ending in '/'.
  void add_ignored(std::string_view text, const std::string& folder);
  // Adds the patterns that a .gitattributes marks as linguist-generated.
  void add_generated(std::string_view text, const std::string& folder);

  // Whether to skip a path below the first folder. The last rule that matches decides, as in Git.
  bool ignores(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::string folder;
    std::string pattern;  // of the whole path below `folder`
    bool ignores = true;
    bool folders_only = false;
    bool files_only = false;
  };
  void add(std::string pattern, Rule rule);

  std::vector<Rule> rules_;
};

}  // namespace coda::io
