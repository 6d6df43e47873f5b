// SPDX-License-Identifier: Apache-2.0
// The table that is shipped, tuned_rows.txt: configurations measured with their epilogues on an
// NVIDIA H200, for the shapes of common models. docs/configurations.md says what is in it and how
// it is made.
#pragma once

#include "hopper/configure/tuned_rows.h"

namespace coda::hopper {

// Throws InternalError if a row cannot be read.
const TunedRows& tuned_table();

}  // namespace coda::hopper
