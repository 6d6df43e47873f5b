// SPDX-License-Identifier: Apache-2.0
// The target for Hopper: TMA loads operands into shared memory, wgmma multiplies them, warpgroups
// are specialised, and CTAs form clusters.
#pragma once

#include "gpu/target/target.h"

namespace coda::gpu {

const Target& sm90();

}  // namespace coda::gpu
