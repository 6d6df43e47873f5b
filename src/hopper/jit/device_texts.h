// SPDX-License-Identifier: Apache-2.0
// The device code, what lies under device/, as text: what emitted kernels include. It is embedded
// in the library when that is built, so that no file is needed at run time.
#pragma once

#include <span>
#include <string_view>

namespace coda::hopper {

struct DeviceText {
  std::string_view name;  // as a kernel includes it: "device/ptx/tma.cuh"
  std::string_view text;
};

// All of them, by name.
std::span<const DeviceText> device_texts();

}  // namespace coda::hopper
