// SPDX-License-Identifier: Apache-2.0
// The machine as the library sees it: for reports, and for whoever wonders why something is slow.
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
// Version, processor, memory, backends, libraries, GPU, compilers, the cache of kernels. What there
// is not says "none" and why; throws nothing of that.
std::vector<SystemFact> system_info();

}  // namespace CODA_API coda
