// SPDX-License-Identifier: Apache-2.0
// Fills in patterns of emitted source. A pattern looks like the source that it produces.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace coda::gpu {

using Parts = std::initializer_list<std::string_view>;  // evaluated from left to right

// Returns `pattern` with each "$" replaced by the next of `parts`.
inline std::string filled(std::string_view pattern, Parts parts) {
  std::string text;
  for (std::string_view part : parts) {
    const size_t hole = pattern.find('$');
    text += pattern.substr(0, hole);
    text += part;
    pattern.remove_prefix(hole + 1);
  }
  return text += pattern;
}

}  // namespace coda::gpu
