// SPDX-License-Identifier: Apache-2.0
// The versions of the libraries that the CPU backend was built with, for `coda info`.
#pragma once

#include <string>

namespace coda::cpu {

// "libxsmm 1.17.0, Highway 1.0.3".
std::string library_versions();

}  // namespace coda::cpu
