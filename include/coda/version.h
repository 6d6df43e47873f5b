// SPDX-License-Identifier: Apache-2.0
// The version: numbers that rise as semantic versioning has it. CMake and packages take it from
// here.
#pragma once

#include <string_view>

#include "coda/api.h"

#define CODA_VERSION_MAJOR 0
#define CODA_VERSION_MINOR 2
#define CODA_VERSION_PATCH 0

namespace CODA_API coda {

// Of the library that runs, which may be newer than these headers: "0.2.0".
std::string_view version();

}  // namespace CODA_API coda
