// SPDX-License-Identifier: Apache-2.0
// A version of NVRTC.
#pragma once

#include <compare>
#include <string>

namespace coda::gpu {

struct CompilerVersion {
  int major = 0;
  int minor = 0;

  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
  friend auto operator<=>(const CompilerVersion&, const CompilerVersion&) = default;
};

}  // namespace coda::gpu
