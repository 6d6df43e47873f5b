// SPDX-License-Identifier: Apache-2.0
#include "base/name_pattern.h"

#include <cstddef>

namespace coda {

// Where the rest does not match, the last * takes a letter more.
bool is_name_like(std::string_view name, std::string_view pattern) {
  size_t at = 0;    // of the name
  size_t next = 0;  // of the pattern
  size_t star = std::string_view::npos;
  size_t taken = 0;  // by the last *: up to this letter
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      taken = at;
    } else if (next < pattern.size() && pattern[next] == name[at]) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  while (next < pattern.size() && pattern[next] == '*') ++next;
  return next == pattern.size();
}

}  // namespace coda
