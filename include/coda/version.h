// SPDX-License-Identifier: Apache-2.0
// The version of the library, by semantic versioning. CMake and the packages read it from here.
#pragma once

#include <string_view>

#include "coda/api.h"

#define CODA_VERSION_MAJOR 0
#define CODA_VERSION_MINOR 2
#define CODA_VERSION_PATCH 0

namespace CODA_API coda {

// The version of the loaded library, which may be newer than these headers: "0.2.0".
std::string_view version();

}  // namespace CODA_API coda
