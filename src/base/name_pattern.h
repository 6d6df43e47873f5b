// SPDX-License-Identifier: Apache-2.0
// Matches names against a user's patterns, in which * stands for any characters.
#pragma once

#include <string_view>

namespace coda {

// Whether the whole name is the pattern, in which each * stands for any characters, or none.
bool is_name_like(std::string_view name, std::string_view pattern);

}  // namespace coda
