// SPDX-License-Identifier: Apache-2.0
// Proves knowledge of a secret without sending it: the process gets a number that is used once, and
// answers with a keyed hash of the number and of its message.
#pragma once

#include <string>
#include <string_view>

namespace coda {

// HMAC-SHA-256 (RFC 2104): 64 hexadecimal digits.
std::string keyed_hash(std::string_view key, std::string_view text);
// Takes constant time, wherever the two differ.
bool is_same_hash(std::string_view a, std::string_view b);

}  // namespace coda
