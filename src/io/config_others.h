// SPDX-License-Identifier: Apache-2.0
// The settings of a config.json that its architecture does not read. Settings that change the
// mathematics of other architectures are refused, other known settings are ignored, and unknown
// settings and dropout rates are reported.
#pragma once

#include <string>
#include <vector>

#include "io/architecture.h"

namespace coda::io {

// Names that are neither read nor known to be without effect. Throws Error for a setting of other
// architectures that is on. Call it once the architecture has read the settings.
std::vector<std::string> unknown_settings(const Settings& settings,
                                          const Architecture& architecture);

// "attn_pdrop 0.1" for each rate that is not 0, as given or as transformers has it by default.
std::vector<std::string> dropout_settings(const Settings& settings,
                                          const Architecture& architecture);

}  // namespace coda::io
