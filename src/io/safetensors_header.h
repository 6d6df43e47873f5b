// SPDX-License-Identifier: Apache-2.0
// The parts of the header that the reader and the writer of safetensors files share.
#pragma once

#include <optional>
#include <string_view>

#include "io/safetensors.h"

namespace coda::io {

inline constexpr uint64_t kLargestHeader = 100'000'000;  // bytes, as the official library has it
inline constexpr std::string_view kMetadataName = "__metadata__";

std::optional<ElementType> element_type_by_name(std::string_view name);

// Bytes of a tensor, or nothing if they exceed 2^63 - 1. Sizes must not be negative.
std::optional<int64_t> bytes_of(ElementType type, std::span<const int64_t> shape);

}  // namespace coda::io
