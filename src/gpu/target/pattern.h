// SPDX-License-Identifier: Apache-2.0
// Patterns of emitted text, which stand as they will be read.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace coda::gpu {

using Parts = std::initializer_list<std::string_view>;  // made from left to right

// `pattern` with its "$"s replaced by `parts`, in order.
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
