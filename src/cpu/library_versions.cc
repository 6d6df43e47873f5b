// SPDX-License-Identifier: Apache-2.0
// The versions come from the libraries' headers.
#include "cpu/library_versions.h"

#include <hwy/highway.h>
#include <libxsmm_version.h>

namespace coda::cpu {

std::string library_versions() {
  const auto text = [](int major, int minor, int patch) {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  };
  return "libxsmm " +
         text(LIBXSMM_CONFIG_VERSION_MAJOR, LIBXSMM_CONFIG_VERSION_MINOR,
              LIBXSMM_CONFIG_VERSION_UPDATE) +
         ", Highway " + text(HWY_MAJOR, HWY_MINOR, HWY_PATCH);
}

}  // namespace coda::cpu
