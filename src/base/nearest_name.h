// SPDX-License-Identifier: Apache-2.0
// What a user may have meant by a name that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coda {

// The end of a message: "; the nearest known name is "heads"", or "; there is none".
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace coda
