// SPDX-License-Identifier: Apache-2.0
// Tests that compile kernels skip where there is no NVRTC, and say why; where CODA_REQUIRE_NVRTC is
// set, as `make test` does, which installs it, they fail instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "coda/error.h"
#include "gpu/jit/nvrtc_compiler.h"

namespace coda::gpu {

// Nothing, and the reason printed, where NVRTC is not installed.
inline std::optional<NvrtcCompiler> find_nvrtc() {
  try {
    return NvrtcCompiler();
  } catch (const Error& error) {
    if (std::getenv("CODA_REQUIRE_NVRTC") != nullptr) ADD_FAILURE() << error.what();
    std::printf("no NVRTC: %s\n", error.what());
    return std::nullopt;
  }
}

}  // namespace coda::gpu
