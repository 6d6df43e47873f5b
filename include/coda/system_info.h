// SPDX-License-Identifier: Apache-2.0
// Describes the machine as the library sees it, for bug reports and for finding out why something
// is slow.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "coda/api.h"

namespace CODA_API coda {

struct SystemFact {
  std::string name;  // "processor", "gpu driver"
  std::variant<int64_t, std::string> value;
};
// Version, processor, memory, backends, libraries, GPU, compilers, kernel cache. A missing part has
// the value "none" and the reason; it does not throw.
std::vector<SystemFact> system_info();

}  // namespace CODA_API coda
