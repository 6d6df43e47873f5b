// SPDX-License-Identifier: Apache-2.0
// Skips a test where there is no NVRTC.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "coda/error.h"
#include "hopper/nvrtc_compiler.h"

namespace coda::hopper {

// Nothing, and the reason printed, where NVRTC is not installed.
inline std::optional<NvrtcCompiler> find_nvrtc() {
  try {
    return NvrtcCompiler();
  } catch (const Error& error) {
    std::printf("skipped, no NVRTC: %s\n", error.what());
    return std::nullopt;
  }
}

}  // namespace coda::hopper
