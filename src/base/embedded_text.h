// SPDX-License-Identifier: Apache-2.0
// A file of the source tree that is embedded in the library as text, so that no file is needed at
// run time. coda_embed of cmake/targets.cmake generates the functions that return such files.
#pragma once

#include <span>
#include <string_view>

namespace coda {

struct EmbeddedText {
  std::string_view name;  // its path in the source tree: "device/sm90/ptx/tma.cuh"
  std::string_view text;
};

}  // namespace coda
