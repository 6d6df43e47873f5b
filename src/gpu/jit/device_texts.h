// SPDX-License-Identifier: Apache-2.0
// The device code, what lies under device/, as text: what emitted kernels include, by these names.
#pragma once

#include "base/embedded_text.h"

namespace coda::gpu {

// All of them, by name.
std::span<const EmbeddedText> device_texts();

}  // namespace coda::gpu
