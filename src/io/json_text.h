// SPDX-License-Identifier: Apache-2.0
// JSON as our files need it: strict, with messages that name the file and the place, and without
// the traps of a permissive reader (a name that appears twice in an object is an error, not the
// last one wins).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace coda::io {

// `source` is what messages call the text: a file's path. Throws Error.
nlohmann::json parse_json(std::string_view text, const std::string& source);

}  // namespace coda::io
