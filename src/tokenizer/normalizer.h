// SPDX-License-Identifier: Apache-2.0
// Normalises a text before it is cut into pieces: Unicode's normal forms, replacements, a prefix.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/component.h"

namespace coda::tokenizer {

using Normalizer = std::vector<std::function<std::string(std::string&&)>>;

// Throws Error for a type that is not supported: there are NFC, NFD, NFKC, NFKD, Prepend, Replace
// and Sequences of them.
Normalizer make_normalizer(const Component& component);
std::string normalized(const Normalizer& normalizer, std::string_view text);

}  // namespace coda::tokenizer
