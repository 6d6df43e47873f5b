// SPDX-License-Identifier: Apache-2.0
// Separates GEMMs that share only loads (the rotation tables of q and k, if both have equally many
// heads). Sharing a load puts them into one tile space; separate spaces are cheaper than
// accumulators for both.
#pragma once

#include "coda/program.h"

namespace coda::gpu {

// The same program in which each such GEMM has its own loads.
Program clone_shared_loads(const Program& program);

}  // namespace coda::gpu
