// SPDX-License-Identifier: Apache-2.0
// Suggests a known name for an unknown one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coda {

// The end of a message: "; the nearest known name is "heads"", or "; there is none".
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

// The name that was probably meant: a slip of the finger away (a third of the letters, at most
// three).
std::optional<std::string_view> similar_name(std::string_view name,
                                             const std::vector<std::string_view>& known);

}  // namespace coda
