// SPDX-License-Identifier: Apache-2.0
// Converts tokens, as a tokenizer file writes them, back to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/component.h"

namespace coda::tokenizer {

using Decoder = std::vector<std::function<void(std::vector<std::string>&)>>;

// Throws Error for a type that is not supported: there are ByteLevel, ByteFallback, Fuse,
// Metaspace, Replace, Strip and Sequences of them.
Decoder make_decoder(const Component& component);

}  // namespace coda::tokenizer
