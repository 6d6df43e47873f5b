// SPDX-License-Identifier: Apache-2.0
// Whether the kernels that the shipped table leads to are as they should be.
#pragma once

namespace coda::tools {

// Compiles all of them, `threads` at once (0: as many as the machine has). Error if one spills,
// uses local memory or has its wgmma serialised.
void check_table(unsigned threads);

}  // namespace coda::tools
