// SPDX-License-Identifier: Apache-2.0
// The table that is shipped: configurations measured with their epilogues on an NVIDIA H200, for
// the shapes of common models. docs/gpu.md says what is in it and how it is made.
#pragma once

#include "hopper/configure/tuned_rows.h"

namespace coda::hopper {

const TunedRows& tuned_table();

// The file of it, with these rows.
std::string tuned_table_source(const TunedRows& rows, const std::string& measured_on);

}  // namespace coda::hopper
