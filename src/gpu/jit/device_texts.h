// SPDX-License-Identifier: Apache-2.0
// The embedded text of the device code (device/), by the names that emitted kernels include.
#pragma once

#include "base/embedded_text.h"

namespace coda::gpu {

// All files with their names.
std::span<const EmbeddedText> device_texts();

}  // namespace coda::gpu
