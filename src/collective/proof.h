// SPDX-License-Identifier: Apache-2.0
// How a process proves that it knows a secret without saying it: it is given a number that is used
// once, and answers with a keyed hash of it and of what it says.
#pragma once

#include <string>
#include <string_view>

namespace coda {

// HMAC-SHA-256 (RFC 2104): 64 hexadecimal digits.
std::string keyed_hash(std::string_view key, std::string_view text);
// Takes the same time wherever the two differ.
bool is_same_hash(std::string_view a, std::string_view b);

}  // namespace coda
