// SPDX-License-Identifier: Apache-2.0
// Hopper: wgmma from shared memory that TMA fills, warpgroups that specialise, clusters of CTAs.
#pragma once

#include "gpu/target/target.h"

namespace coda::gpu {

const Target& sm90();

}  // namespace coda::gpu
